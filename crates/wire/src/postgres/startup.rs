//! Parses a client's first packet, before messages have tags (§54.2.1, §54.2.11, §54.7
//! "StartupMessage").

use std::borrow::Cow;

use super::cursor::Cursor;
use super::{Parsed, ProtocolError};

/// The longest first packet accepted from an unauthenticated client; servers accept 10,000 bytes.
pub const LENGTH_MAX: u32 = 16 * 1024;

/// The newest supported minor version of protocol 3 (PostgreSQL 18: longer cancel keys).
pub const MINOR_MAX: u16 = 2;

/// The first byte of a TLS handshake record: a connection that starts TLS without SSLRequest
/// (§54.2.12), which must offer ALPN `postgresql`. No length field that a server accepts begins
/// with it.
pub const TLS_FIRST_BYTE: u8 = 0x16;

/// The one ALPN protocol name, mandatory when TLS is started without SSLRequest.
pub const ALPN: &[u8] = b"postgresql";

const VERSION_3: u32 = 3 << 16;
const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSSENC: u32 = 80_877_104;

/// First packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First<'a> {
    /// A TLS handshake; no byte of it is consumed.
    DirectTls,
    /// SSLRequest: answer one byte, `S` or `N`. Any byte that the client sent after it before the
    /// answer is an attack or an error and ends the connection (CVE-2021-23214).
    SslRequest,
    /// GSSENCRequest: like [`First::SslRequest`], for encryption by GSSAPI.
    GssEncRequest,
    /// CancelRequest for another connection; there is no reply, and the connection is closed.
    Cancel(CancelKey<'a>),
    /// StartupMessage: a login.
    Startup(Startup<'a>),
}

/// Key from a server's BackendKeyData, which a cancel request must present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelKey<'a> {
    /// The server's process id, or its substitute.
    pub process: u32,
    /// The secret: 4 bytes in protocol 3.0, up to 256 in 3.2.
    pub secret: &'a [u8],
}

/// A StartupMessage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Startup<'a> {
    /// The minor version of protocol 3 that the client requests.
    pub minor: u16,
    parameters: &'a [u8],
}

/// Replication mode that a client requests (parameter `replication`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// An ordinary session.
    No,
    /// A walsender that streams WAL.
    Physical,
    /// A walsender attached to the database.
    Logical,
}

/// Parses the first packet of a connection.
#[must_use]
pub fn first(bytes: &[u8]) -> Parsed<First<'_>> {
    if bytes.first() == Some(&TLS_FIRST_BYTE) {
        return Parsed::Frame(First::DirectTls, 0);
    }
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Parsed::Incomplete { need: 8 };
    };
    let length = u32::from_be_bytes(*length);
    if length < 8 {
        return Parsed::Invalid(ProtocolError::LengthTooSmall(length));
    }
    if length > LENGTH_MAX {
        return Parsed::Invalid(ProtocolError::TooLong { tag: 0, length });
    }
    let code = match rest.split_first_chunk::<4>() {
        Some((code, _)) => u32::from_be_bytes(*code),
        None => return Parsed::Incomplete { need: 8 },
    };
    if let Err(fault) = check_code(code, length) {
        return Parsed::Invalid(fault);
    }
    let length = length as usize;
    let Some(body) = bytes.get(8..length) else {
        return Parsed::Incomplete { need: length };
    };
    match read(code, body) {
        Ok(first) => Parsed::Frame(first, length),
        Err(fault) => Parsed::Invalid(fault),
    }
}

/// Checks the code and the length before the body has arrived.
fn check_code(code: u32, length: u32) -> Result<(), ProtocolError> {
    match code {
        SSL | GSSENC if length != 8 => Err(ProtocolError::TooLong { tag: 0, length }),
        CANCEL if length < 16 => Err(ProtocolError::LengthTooSmall(length)),
        CANCEL if length > 12 + 256 => Err(ProtocolError::TooLong { tag: 0, length }),
        SSL | GSSENC | CANCEL => Ok(()),
        _ if code & 0xffff_0000 == VERSION_3 => Ok(()),
        _ => Err(ProtocolError::Version(code)),
    }
}

fn read(code: u32, body: &[u8]) -> Result<First<'_>, ProtocolError> {
    match code {
        SSL => Ok(First::SslRequest),
        GSSENC => Ok(First::GssEncRequest),
        CANCEL => {
            let mut body = Cursor(body);
            let process = body.be_u32().ok_or(ProtocolError::Parameters)?;
            let secret = body.rest();
            Ok(First::Cancel(CancelKey { process, secret }))
        }
        _ => {
            let minor = (code & 0xffff) as u16;
            let parameters = whole_pairs(body).ok_or(ProtocolError::Parameters)?;
            let startup = Startup { minor, parameters };
            match startup.user() {
                Some(user) if !user.is_empty() => Ok(First::Startup(startup)),
                _ => Err(ProtocolError::NoUser),
            }
        }
    }
}

/// Returns the list without its terminator; `None` unless it consists of pairs and one zero at the
/// very end.
fn whole_pairs(body: &[u8]) -> Option<&[u8]> {
    let (last, list) = body.split_last()?;
    if *last != 0 {
        return None;
    }
    let mut rest = Cursor(list);
    while !rest.0.is_empty() {
        let name = rest.text()?;
        rest.text()?;
        if name.is_empty() {
            return None;
        }
    }
    Some(list)
}

impl<'a> Startup<'a> {
    /// Returns every name and value, in the order sent; also those that begin with `_pq_.`.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = Cursor(self.parameters);
        std::iter::from_fn(move || Some((rest.text()?, rest.text()?)))
    }

    /// Returns the settings of the session: all parameters except those with a meaning of their own
    /// (`user`, `database`, `options`, `replication`, `_pq_.*`).
    pub fn settings(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let own = |name: &[u8]| {
            matches!(name, b"user" | b"database" | b"options" | b"replication")
                || name.starts_with(b"_pq_.")
        };
        self.parameters().filter(move |(name, _)| !own(name))
    }

    /// Returns the last value of a parameter, which is the one that servers use.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        let values = self.parameters().filter(|(found, _)| *found == name);
        values.map(|(_, value)| value).last()
    }

    /// Returns the user that logs in.
    #[must_use]
    pub fn user(&self) -> Option<&'a [u8]> {
        self.get(b"user")
    }

    /// Returns the named database; by default the one with the user's name.
    #[must_use]
    pub fn database(&self) -> &'a [u8] {
        let named = self.get(b"database").filter(|name| !name.is_empty());
        named.or_else(|| self.user()).unwrap_or_default()
    }

    /// Returns the requested replication mode. `database` is the only spelling of logical
    /// replication. Every other value that is not a spelling of "off" counts as physical: a server
    /// refuses it if it is invalid.
    #[must_use]
    pub fn replication(&self) -> Replication {
        match self.get(b"replication") {
            None => Replication::No,
            Some(b"database") => Replication::Logical,
            Some(value) if is_off(value) => Replication::No,
            Some(_) => Replication::Physical,
        }
    }

    /// Returns the protocol options (`_pq_.*`) that the client requests; Evenkeel supports none of
    /// them.
    pub fn protocol_options(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let names = self.parameters().map(|(name, _)| name);
        names.filter(|name| name.starts_with(b"_pq_."))
    }

    /// Returns the minor version to use: the requested one, at most `minor_max`.
    #[must_use]
    pub fn agreed_minor(&self, minor_max: u16) -> u16 {
        self.minor.min(minor_max)
    }

    /// Returns whether NegotiateProtocolVersion must be sent, once: §54.2.1 "if the server does not
    /// support the minor version … or there are unrecognized protocol options".
    #[must_use]
    pub fn must_negotiate(&self, minor_max: u16) -> bool {
        self.minor > minor_max || self.protocol_options().next().is_some()
    }

    /// Returns the settings inside `options` (`-c name=value`, `--name=value`), in order.
    ///
    /// `None` for any other part: another command-line switch of the server.
    pub fn options(&self) -> impl Iterator<Item = Option<Setting<'a>>> + use<'a> {
        let mut words = OptionWords(self.get(b"options").unwrap_or_default());
        std::iter::from_fn(move || {
            let word = words.next()?;
            Some(match word.as_ref() {
                b"-c" => words.next().and_then(|word| Setting::of(word, 0)),
                word_bytes if word_bytes.starts_with(b"-c") => Setting::of(word, 2),
                word_bytes if word_bytes.starts_with(b"--") => Setting::of(word, 2),
                _ => None,
            })
        })
    }
}

/// Returns whether servers parse the value as false: any unambiguous prefix of a word, in any case.
fn is_off(value: &[u8]) -> bool {
    let begins = |word: &[u8]| {
        let beginning = word.get(..value.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(value))
    };
    let is_clear = !value.is_empty() && !value.eq_ignore_ascii_case(b"o");
    is_clear && (value == b"0" || [&b"false"[..], b"no", b"off"].into_iter().any(begins))
}

/// A setting from the command line in `options`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<'a> {
    word: Cow<'a, [u8]>,
    name_start: usize,
    name_end: usize,
}

impl<'a> Setting<'a> {
    fn of(word: Cow<'a, [u8]>, name_start: usize) -> Option<Self> {
        let name_end = memchr::memchr(b'=', &word)?;
        (name_end > name_start).then_some(Setting {
            word,
            name_start,
            name_end,
        })
    }

    /// Returns the setting's name; servers treat `-` as `_` in it.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.word
            .get(self.name_start..self.name_end)
            .unwrap_or_default()
    }

    /// Returns the value as written, without the backslashes that escaped its blanks.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let value = self.word.get(self.name_end..).unwrap_or_default();
        value.strip_prefix(b"=").unwrap_or_default()
    }
}

/// Iterator over the words of `options`: separated by blanks; a backslash escapes the next byte
/// (§54.7).
struct OptionWords<'a>(&'a [u8]);

impl<'a> Iterator for OptionWords<'a> {
    type Item = Cow<'a, [u8]>;

    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let rest = self.0.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
        let mut protected = false;
        let end = rest.iter().position(|byte| {
            let ends = !protected && byte.is_ascii_whitespace();
            protected = !protected && *byte == b'\\';
            ends
        });
        let (word, rest) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        self.0 = rest;
        Some(unprotected(word))
    }
}

fn unprotected(word: &[u8]) -> Cow<'_, [u8]> {
    if !word.contains(&b'\\') {
        return Cow::Borrowed(word);
    }
    let mut plain = Vec::with_capacity(word.len());
    let mut bytes = word.iter();
    while let Some(byte) = bytes.next() {
        let meant = if *byte == b'\\' {
            bytes.next()
        } else {
            Some(byte)
        };
        plain.extend(meant);
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests;
