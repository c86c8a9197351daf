//! Request targets and hosts (RFC 9112 §3.2, RFC 3986 §3.2).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::fault::Fault;
use super::grammar;
use super::head::{Method, Span, Version};

/// The longest host, in bytes: that of a domain name (RFC 1035 §2.3.4), with its final dot.
pub const HOST_BYTES_MAX: usize = 254;

/// Form of a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// Path and query.
    #[default]
    Origin,
    /// `http://` or `https://`, host, path and query.
    Absolute,
    /// `*`: the server as a whole. `OPTIONS` only.
    Asterisk,
}

/// Path and query of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAndQuery<'a> {
    /// Path, which begins with `/`, or is `*`.
    pub path: &'a [u8],
    /// Query with its `?`, or empty.
    pub query: &'a [u8],
}

/// Target of a request, and the host that it is for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    form: TargetForm,
    is_https: Option<bool>,
    path: Path,
    /// Query with its `?`, or empty.
    query: Span,
    authority: Option<Authority>,
}

/// Path of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Path {
    Sent(Span),
    /// An absolute target without path: `/`.
    #[default]
    Root,
    /// `*`, or an absolute target of `OPTIONS` without path and query (RFC 9112 §3.2.4).
    Server,
}

/// Host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Authority {
    /// Both as sent.
    whole: Span,
    /// Host without a final dot.
    host: Span,
    port: Option<u16>,
}

impl Target {
    /// Reads the target of a request with `method`.
    pub(super) fn read(bytes: &[u8], span: Span, method: Method) -> Result<Self, Fault> {
        let text = span.of(bytes);
        if text.first() == Some(&b'/') {
            let (path, query) = split_query(bytes, span);
            return Ok(Target {
                path: Path::Sent(path),
                query,
                ..Target::default()
            });
        }
        if text == b"*" && method == Method::Options {
            return Ok(Target {
                form: TargetForm::Asterisk,
                path: Path::Server,
                ..Target::default()
            });
        }
        Target::absolute(bytes, span, method)
    }

    #[cold]
    fn absolute(bytes: &[u8], span: Span, method: Method) -> Result<Self, Fault> {
        let text = span.of(bytes);
        let (is_https, scheme_length) = match text {
            [scheme @ .., _] if starts_with(scheme, b"http://") => (false, 7),
            [scheme @ .., _] if starts_with(scheme, b"https://") => (true, 8),
            _ => return Err(Fault::Target),
        };
        let start = (span.start as usize).saturating_add(scheme_length);
        let rest = text.get(scheme_length..).unwrap_or_default();
        // RFC 3986 §3.2: the authority "is terminated by the next slash, question mark, or number
        // sign", and no target has the last.
        let length = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
        let end = start.saturating_add(length.unwrap_or(rest.len()));
        let authority = Authority::read(bytes, Span::new(start, end))?;
        let (path, query) = split_query(bytes, Span::new(end, span.end as usize));
        let is_empty = path.start == path.end;
        Ok(Target {
            form: TargetForm::Absolute,
            is_https: Some(is_https),
            path: match method {
                Method::Options if is_empty && query == Span::default() => Path::Server,
                _ if is_empty => Path::Root,
                _ => Path::Sent(path),
            },
            query,
            authority: Some(authority),
        })
    }

    /// Takes the host from the field `Host`, and checks it against that of an absolute target.
    pub(super) fn name_host(
        &mut self,
        bytes: &[u8],
        host: Option<Span>,
        version: Version,
    ) -> Result<(), Fault> {
        let Some(span) = host else {
            return match version {
                // RFC 9112 §3.2: 400 to "any HTTP/1.1 request message that lacks a Host".
                Version::Http11 => Err(Fault::HostMissing),
                Version::Http10 => Ok(()),
            };
        };
        let named = Authority::read(bytes, span)?;
        let Some(target) = self.authority else {
            self.authority = Some(named);
            return Ok(());
        };
        let default_port = if self.is_https == Some(true) { 443 } else { 80 };
        match same_authority((target, bytes), (named, bytes), default_port) {
            true => Ok(()),
            false => Err(Fault::HostDiffers),
        }
    }

    pub(super) fn form(&self) -> TargetForm {
        self.form
    }

    pub(super) fn is_https(&self) -> Option<bool> {
        self.is_https
    }

    #[inline]
    pub(super) fn path_and_query<'a>(&self, bytes: &'a [u8]) -> PathAndQuery<'a> {
        PathAndQuery {
            path: match self.path {
                Path::Sent(span) => span.of(bytes),
                Path::Root => b"/",
                Path::Server => b"*",
            },
            query: self.query.of(bytes),
        }
    }

    pub(super) fn host<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.authority.map(|authority| authority.host.of(bytes))
    }

    pub(super) fn port(&self) -> Option<u16> {
        self.authority.and_then(|authority| authority.port)
    }

    pub(super) fn authority<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.authority.map(|authority| authority.whole.of(bytes))
    }
}

impl Authority {
    /// Reads `uri-host [ ":" port ]`: a name of unreserved characters without empty labels, an IPv4
    /// address, or an IPv6 address in brackets. User information, percent-encoding, an empty host
    /// and an empty port are refused.
    fn read(bytes: &[u8], span: Span) -> Result<Self, Fault> {
        let text = span.of(bytes);
        let host_length = match text.first() {
            Some(b'[') => ipv6_length(text)?,
            _ => text
                .iter()
                .position(|&byte| byte == b':')
                .unwrap_or(text.len()),
        };
        let (host, rest) = text.split_at_checked(host_length).unwrap_or_default();
        let port = match rest.split_first() {
            None => None,
            Some((b':', digits)) => Some(port(digits)?),
            Some(_) => return Err(Fault::Host),
        };
        let has_brackets = host.first() == Some(&b'[');
        let name = match host {
            [name @ .., b'.'] if !has_brackets => name,
            name => name,
        };
        if !has_brackets && !is_name(name) {
            return Err(Fault::Host);
        }
        let end = (span.start as usize).saturating_add(name.len());
        Ok(Authority {
            whole: span,
            host: Span::new(span.start as usize, end),
            port,
        })
    }
}

/// Returns whether the text is a host with an optional port.
pub(crate) fn is_authority(text: &[u8]) -> bool {
    Authority::read(text, Span::new(0, text.len())).is_ok()
}

/// Returns whether two texts name the same host and port.
pub(crate) fn is_same_authority(a: &[u8], b: &[u8], default_port: u16) -> bool {
    let read = |text: &[u8]| Authority::read(text, Span::new(0, text.len()));
    match (read(a), read(b)) {
        (Ok(of_a), Ok(of_b)) => same_authority((of_a, a), (of_b, b), default_port),
        _ => false,
    }
}

/// Compares two authorities, each with the bytes that it was read from: hosts in any case of their
/// letters and without a final dot, ports with the default one.
fn same_authority(a: (Authority, &[u8]), b: (Authority, &[u8]), default_port: u16) -> bool {
    let port = |authority: Authority| authority.port.unwrap_or(default_port);
    let (host_of_a, host_of_b) = (a.0.host.of(a.1), b.0.host.of(b.1));
    host_of_a.eq_ignore_ascii_case(host_of_b) && port(a.0) == port(b.0)
}

/// Returns the length of an IPv6 address with its brackets. Zones and addresses of later versions
/// are refused.
fn ipv6_length(text: &[u8]) -> Result<usize, Fault> {
    let end = text
        .iter()
        .position(|&byte| byte == b']')
        .ok_or(Fault::Host)?;
    let address = text.get(1..end).unwrap_or_default();
    let address = std::str::from_utf8(address).map_err(|_| Fault::Host)?;
    match address.parse::<Ipv6Addr>() {
        Ok(_) => Ok(end.saturating_add(1)),
        Err(_) => Err(Fault::Host),
    }
}

/// Returns whether the bytes are a name without empty labels. One whose last label is a number is
/// an IPv4 address, in the usual form only: programs read `0x7f.1` differently.
fn is_name(name: &[u8]) -> bool {
    let mut label = 0_usize;
    for &byte in name {
        match byte {
            b'.' if label == 0 => return false,
            b'.' => label = 0,
            byte if grammar::is_host(byte) => label = label.saturating_add(1),
            _ => return false,
        }
    }
    if label == 0 || name.len() >= HOST_BYTES_MAX {
        return false;
    }
    let last = name
        .get(name.len().saturating_sub(label)..)
        .unwrap_or_default();
    if !last.first().is_some_and(u8::is_ascii_digit) || !is_number(last) {
        return true;
    }
    std::str::from_utf8(name).is_ok_and(|name| name.parse::<Ipv4Addr>().is_ok())
}

/// Returns whether a label is a decimal or hexadecimal number.
fn is_number(label: &[u8]) -> bool {
    match label {
        [b'0', b'x' | b'X', digits @ ..] => digits.iter().all(u8::is_ascii_hexdigit),
        digits => digits.iter().all(u8::is_ascii_digit),
    }
}

/// Reads a port: 1-65535 without leading zeros.
fn port(digits: &[u8]) -> Result<u16, Fault> {
    let number = match digits {
        [] | [b'0', ..] => None,
        digits => grammar::decimal(digits),
    };
    let port = number.and_then(|number| u16::try_from(number).ok());
    port.ok_or(Fault::Host)
}

/// Returns the span before the first `?`, and the one from it on, which may be empty.
fn split_query(bytes: &[u8], span: Span) -> (Span, Span) {
    match memchr::memchr(b'?', span.of(bytes)) {
        None => (span, Span::default()),
        Some(length) => {
            let at = (span.start as usize).saturating_add(length);
            (
                Span::new(span.start as usize, at),
                Span::new(at, span.end as usize),
            )
        }
    }
}

fn starts_with(text: &[u8], beginning: &[u8]) -> bool {
    let part = text.get(..beginning.len());
    part.is_some_and(|part| part.eq_ignore_ascii_case(beginning))
}
