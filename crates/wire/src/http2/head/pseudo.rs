//! Pseudo-fields of a request (RFC 9113 §8.3.1).

use std::ops::Range;

use super::HeadFault;
use crate::http::{Method, grammar, target};

/// Places of the values of the pseudo-fields.
#[derive(Debug, Default)]
pub(super) struct Pseudo {
    method: Option<Range<usize>>,
    scheme: Option<Range<usize>>,
    authority: Option<Range<usize>>,
    path: Option<Range<usize>>,
    protocol: Option<Range<usize>>,
}

/// Valid parts of a start line.
pub(super) struct StartLine<'a> {
    /// Method in HTTP/1.1: that of an extended CONNECT is `GET`.
    pub(super) method: &'a [u8],
    pub(super) path: &'a [u8],
    pub(super) authority: Option<&'a [u8]>,
    /// Port of an authority without one.
    pub(super) default_port: u16,
    /// Protocol of an extended CONNECT (RFC 8441 §4).
    pub(super) protocol: Option<&'a [u8]>,
}

impl Pseudo {
    /// Takes a pseudo-field, with its name without the colon.
    pub(super) fn take(
        &mut self,
        name: &[u8],
        value: &[u8],
        held: &mut Vec<u8>,
    ) -> Result<(), HeadFault> {
        let place = match name {
            b"method" => &mut self.method,
            b"scheme" => &mut self.scheme,
            b"authority" => &mut self.authority,
            b"path" => &mut self.path,
            b"protocol" => &mut self.protocol,
            _ => return Err(HeadFault::Malformed("an unknown pseudo-field")),
        };
        if place.is_some() {
            return Err(HeadFault::Malformed("a pseudo-field is there twice"));
        }
        let start = held.len();
        held.extend_from_slice(value);
        *place = Some(start..held.len());
        Ok(())
    }

    /// Returns the parts of the start line, if they are valid.
    pub(super) fn start_line<'a>(&self, held: &'a [u8]) -> Result<StartLine<'a>, HeadFault> {
        let of = |range: &Range<usize>| held.get(range.clone()).unwrap_or_default();
        let (Some(method), Some(scheme), Some(path)) = (&self.method, &self.scheme, &self.path)
        else {
            return Err(HeadFault::Malformed("a pseudo-field is missing"));
        };
        let (method, scheme, path) = (of(method), of(scheme), of(path));
        let protocol = self.protocol.as_ref().map(of);
        let is_connect = method == b"CONNECT";
        if !grammar::is_token_text(method) || (is_connect && protocol.is_none()) {
            return Err(HeadFault::Malformed(":method is no token, or is CONNECT"));
        }
        if let Some(protocol) = protocol {
            check_protocol(protocol, is_connect)?;
        }
        if !is_scheme(scheme) {
            return Err(HeadFault::Malformed(":scheme is no scheme"));
        }
        if !is_path(path, Method::of(method)) {
            return Err(HeadFault::Malformed(":path is no path"));
        }
        let authority = self.authority.as_ref().map(of);
        if authority.is_some_and(|authority| !target::is_authority(authority)) {
            return Err(HeadFault::Malformed(":authority is no name or address"));
        }
        Ok(StartLine {
            method: if is_connect { b"GET" } else { method },
            path,
            authority,
            default_port: match scheme.eq_ignore_ascii_case(b"https") {
                true => 443,
                false => 80,
            },
            protocol,
        })
    }
}

/// Checks that `:protocol` is a name, and that its request is a CONNECT (RFC 8441 §4).
fn check_protocol(protocol: &[u8], is_connect: bool) -> Result<(), HeadFault> {
    match (is_connect, grammar::is_token_text(protocol)) {
        (true, true) => Ok(()),
        (true, false) => Err(HeadFault::Malformed(":protocol is no token")),
        (false, _) => Err(HeadFault::Malformed(":protocol without CONNECT")),
    }
}

/// Returns whether the text is a scheme (RFC 3986 §3.1).
fn is_scheme(text: &[u8]) -> bool {
    let may_follow = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(may_follow)
}

/// Returns whether the text is a path with an optional query, or `*` where the method has it.
fn is_path(text: &[u8], method: Method) -> bool {
    match text {
        b"*" => method == Method::Options,
        [b'/', ..] => grammar::target_end(text, 0) == text.len(),
        _ => false,
    }
}
