//! Writes heads with edits: kept fields in the sender's case and order, all others generated.
//!
//! Fields of one connection, `Host` and the framing are never copied. Names are compared as a
//! program compares them that reads `-`, `_` and `.` as one, so that no alias of a field that is
//! removed remains.

pub(crate) use super::decimal::Decimal;
use super::framing::Framing;
use super::grammar;
use super::head::{Field, FieldSpan, Fields, KnownName, RequestHead, ResponseHead, Version};
use super::hops;

/// Field to write: name and value.
pub type NewField<'a> = (&'a [u8], &'a [u8]);

/// Edit of a request's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathEdit<'a> {
    /// The path as it came.
    #[default]
    Keep,
    /// The path without its first `strip` bytes, after the bytes of `put`. A `/` is added where
    /// none would begin the path. The path `*` is kept.
    Prefix {
        /// Number of bytes that are left out.
        strip: usize,
        /// Bytes in their place.
        put: &'a [u8],
    },
    /// Another path, in place of the path; the query is kept.
    Replace(&'a [u8]),
}

/// Whether the connection that a head is written to stays open after the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persistence {
    /// The connection stays open.
    #[default]
    Keep,
    /// The connection is closed: `Connection: close`.
    Close,
}

/// Scheme of a request's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// `http`.
    #[default]
    Http,
    /// `https`.
    Https,
}

/// Edits of a request on its way to a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestEdit<'a> {
    /// Scheme that HTTP/2 states; HTTP/1.1 states none.
    pub scheme: Scheme,
    /// Edit of the path.
    pub path: PathEdit<'a>,
    /// `Host` in place of the request's own. A request of HTTP/1.0 may have none, and needs one
    /// here: servers refuse a request of HTTP/1.1 without.
    pub host: Option<&'a [u8]>,
    /// Names of fields to remove.
    pub remove: &'a [&'a [u8]],
    /// Fields to set, in place of all fields of their names.
    pub set: &'a [NewField<'a>],
    /// Further fields to set, such as `X-Forwarded-For`.
    pub forwarded: &'a [NewField<'a>],
    /// Whether the server connection stays open.
    pub persistence: Persistence,
    /// True: a valid opening request of a WebSocket remains one. False: it becomes a plain request.
    pub upgrade: bool,
    /// True: `Expect` is left out, because the body is sent in any case.
    pub without_expect: bool,
    /// Framing in place of the request's own, such as the length of a body that was held.
    pub framing: Option<Framing>,
}

/// Edit of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyEdit {
    /// The bytes as they come.
    #[default]
    Keep,
    /// Other bytes, such as the compressed ones, whose number is not known. The head of a response
    /// to HEAD states no length either.
    Replace,
}

/// Edits of a response on its way to a client.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseEdit<'a> {
    /// Names of fields to remove.
    pub remove: &'a [&'a [u8]],
    /// Fields to set, in place of all fields of their names.
    pub set: &'a [NewField<'a>],
    /// Fields to add, beside those of their names, such as `Set-Cookie`.
    pub add: &'a [NewField<'a>],
    /// The client's version.
    pub client: Version,
    /// Whether the client connection stays open. A body without a known end closes it in any case.
    pub persistence: Persistence,
    /// True: a response 101 keeps `Upgrade: websocket`.
    pub upgrade: bool,
    /// Edit of the body.
    pub body: BodyEdit,
}

impl ResponseEdit<'_> {
    /// Returns the framing of the body after the edit, towards a client of HTTP/1.1.
    #[must_use]
    pub fn framing_of(&self, head: &ResponseHead) -> Framing {
        match (self.body, head.framing()) {
            (BodyEdit::Replace, Framing::Length(_)) => Framing::Chunked,
            (_, framing) => framing,
        }
    }
}

/// Decisions of a written response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Framing in which the body must be written.
    pub framing: Framing,
    /// Whether the client connection stays open after it.
    pub persistence: Persistence,
}

/// Appends the head of a request: always HTTP/1.1, with the target in origin form. Returns the
/// framing in which the body must be sent.
pub fn write_request(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    edit: &RequestEdit<'_>,
) -> Framing {
    out.reserve(head.length().saturating_add(256));
    out.extend_from_slice(head.method_text(bytes));
    out.push(b' ');
    write_target(out, head, bytes, edit.path);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(host) = edit.host.or(head.authority(bytes)) {
        write_field(out, b"Host", host);
    }
    let framing = edit.framing.unwrap_or(head.framing());
    let removal = removal_of_request(edit);
    let without = left_out_of_request(head, edit, framing);
    copy_fields(out, head.parts(), bytes, &removal, without);
    for (name, value) in edit.set.iter().chain(edit.forwarded) {
        write_field(out, name, value);
    }
    write_framing(out, framing);
    let upgrade = edit.upgrade && head.upgrade().is_some();
    let options = [
        (edit.persistence == Persistence::Close, "close"),
        (upgrade, "Upgrade"),
        (head.accepts_trailers(), "TE"),
    ];
    write_options(out, options);
    if upgrade {
        out.extend_from_slice(b"Upgrade: websocket\r\n");
    }
    if head.accepts_trailers() {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    out.extend_from_slice(b"\r\n");
    framing
}

/// Appends the head of a response: always HTTP/1.1 (RFC 9110 §6.2). Returns how the body must be
/// written, and whether the connection stays open.
///
/// Interim responses are written in the same way; send none to a client of HTTP/1.0.
pub fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    bytes: &[u8],
    edit: &ResponseEdit<'_>,
) -> Written {
    out.reserve(head.length().saturating_add(256));
    write_status_line(out, head.status(), head.reason(bytes));
    let framing = edit.framing_of(head).towards(edit.client);
    let removal = removal_of_response(edit);
    let without = left_out_of_response(framing);
    copy_fields(out, head.parts(), bytes, &removal, without);
    for (name, value) in edit.set.iter().chain(edit.add) {
        write_field(out, name, value);
    }
    let upgrade = edit.upgrade && head.status() == 101;
    write_framing(out, written_framing(head, framing, edit.body));
    let persistence = match framing {
        Framing::UntilClose => Persistence::Close,
        _ => edit.persistence,
    };
    if upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
    } else if !head.is_interim() {
        write_persistence(out, persistence, edit.client);
    }
    out.extend_from_slice(b"\r\n");
    Written {
        framing,
        persistence,
    }
}

/// Returns what the edits remove from a request.
pub(crate) fn removal_of_request<'a>(edit: &RequestEdit<'a>) -> Removal<'a> {
    Removal::new([edit.remove], [edit.set, edit.forwarded])
}

/// Returns the fields that a request keeps, in their order. `without` are the known names that it
/// does not keep.
pub(crate) fn kept_of_request<'a>(
    head: &'a RequestHead,
    bytes: &'a [u8],
    removal: &'a Removal<'_>,
    without: u64,
) -> impl Iterator<Item = Field<'a>> {
    kept(head.parts(), bytes, removal, without).map(|(_, field)| field)
}

/// Returns the known names that a request does not keep: `Trailer`, if none can follow, and
/// `Expect`, if the body is sent in any case.
pub(crate) fn left_out_of_request(
    head: &RequestHead,
    edit: &RequestEdit<'_>,
    framing: Framing,
) -> u64 {
    let trailer = match framing {
        Framing::Chunked => 0,
        _ => KnownName::Trailer.bit(),
    };
    match edit.without_expect || head.version() == Version::Http10 {
        true => trailer | KnownName::Expect.bit(),
        false => trailer,
    }
}

/// Returns what the edits remove from a response.
pub(crate) fn removal_of_response<'a>(edit: &ResponseEdit<'a>) -> Removal<'a> {
    Removal::new([edit.remove], [edit.set, &[]])
}

/// Returns the fields that a response keeps, in their order, if its body is sent with `framing`.
pub(crate) fn kept_of_response<'a>(
    head: &'a ResponseHead,
    bytes: &'a [u8],
    removal: &'a Removal<'_>,
    framing: Framing,
) -> impl Iterator<Item = Field<'a>> {
    let kept = kept(head.parts(), bytes, removal, left_out_of_response(framing));
    kept.map(|(_, field)| field)
}

/// Returns the framing that the head of a response states, if its body is sent with `framing`.
pub(crate) fn written_framing(head: &ResponseHead, framing: Framing, body: BodyEdit) -> Framing {
    let length = match body {
        BodyEdit::Keep => head.content_length(),
        BodyEdit::Replace => None,
    };
    match (framing, length, head.status()) {
        // RFC 9110 §8.6: no Content-Length in 1xx and 204.
        (Framing::None, _, 100..200 | 204) | (Framing::None, None, _) => Framing::None,
        // HEAD and 304 keep the length of the body that they do not have, if it is certain.
        (Framing::None, Some(_), _) if head.has(KnownName::TransferEncoding) => Framing::None,
        (Framing::None, Some(length), _) => Framing::Length(length),
        (framing, _, _) => framing,
    }
}

/// Returns the known names that a response does not keep: `Trailer`, if none can follow.
fn left_out_of_response(framing: Framing) -> u64 {
    match framing {
        Framing::Chunked => 0,
        _ => KnownName::Trailer.bit(),
    }
}

/// Names of the fields to leave out, and the lengths that they have.
pub(crate) struct Removal<'a> {
    names: [&'a [&'a [u8]]; 1],
    fields: [&'a [NewField<'a>]; 2],
    /// Bit n: a name has n bytes, or more by a multiple of 64.
    lengths: u64,
}

impl<'a> Removal<'a> {
    fn new(names: [&'a [&'a [u8]]; 1], fields: [&'a [NewField<'a>]; 2]) -> Self {
        let of_names = names.iter().copied().flatten().map(|name| name.len());
        let of_fields = fields.iter().copied().flatten().map(|(name, _)| name.len());
        let lengths = of_names
            .chain(of_fields)
            .fold(0, |lengths, length| lengths | length_bit(length));
        Removal {
            names,
            fields,
            lengths,
        }
    }

    #[inline]
    fn has(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name.len()) != 0 && self.compare(name)
    }

    fn compare(&self, name: &[u8]) -> bool {
        let names = self.names.iter().copied().flatten().copied();
        let fields = self.fields.iter().copied().flatten().map(|(name, _)| *name);
        names
            .chain(fields)
            .any(|removed| grammar::folded_eq(removed, name))
    }
}

#[inline]
fn length_bit(length: usize) -> u64 {
    1_u64.wrapping_shl(grammar::offset(length))
}

/// Returns the fields that are neither generated, nor nominated, nor removed, with their places.
#[inline]
fn kept<'a>(
    fields: &'a Fields,
    bytes: &'a [u8],
    removal: &'a Removal<'_>,
    without: u64,
) -> impl Iterator<Item = (&'a FieldSpan, Field<'a>)> {
    fields.spans().iter().filter_map(move |span| {
        let known = span.known();
        if hops::is_generated(known) || known.bit() & without != 0 || span.is_nominated() {
            return None;
        }
        let field = fields.field(span, bytes);
        (!removal.has(field.name)).then_some((span, field))
    })
}

/// Copies the fields that are kept. Neighbours whose lines are in the usual form are copied
/// together.
fn copy_fields(
    out: &mut Vec<u8>,
    fields: &Fields,
    bytes: &[u8],
    removal: &Removal<'_>,
    without: u64,
) {
    let mut run = 0..0;
    for (span, field) in kept(fields, bytes, removal, without) {
        match span.copyable() {
            Some((start, end)) if start == run.end => run.end = end,
            copyable => {
                out.extend_from_slice(bytes.get(run).unwrap_or_default());
                run = 0..0;
                match copyable {
                    Some((start, end)) => run = start..end,
                    None => write_line(out, field.name, field.value),
                }
            }
        }
    }
    out.extend_from_slice(bytes.get(run).unwrap_or_default());
}

pub(crate) fn write_target(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    edit: PathEdit<'_>,
) {
    let target = head.path_and_query(bytes);
    match edit {
        _ if target.path == b"*" => out.push(b'*'),
        PathEdit::Keep => out.extend_from_slice(target.path),
        PathEdit::Prefix { strip, put } => {
            let rest = target.path.get(strip..).unwrap_or_default();
            let start = out.len();
            let joined = match (put, rest) {
                ([.., b'/'], [b'/', rest @ ..]) => rest,
                (_, rest) => rest,
            };
            for &byte in put.iter().chain(joined) {
                write_path_byte(out, start, byte);
            }
            if out.len() == start {
                out.push(b'/');
            }
        }
        PathEdit::Replace(path) => {
            let start = out.len();
            for &byte in path {
                write_path_byte(out, start, byte);
            }
            if out.len() == start {
                out.push(b'/');
            }
        }
    }
    out.extend_from_slice(target.query);
}

/// Appends a byte of a path that began at `start`, which begins with `/` in any case. A byte that
/// no path has is left out: it would end the path, or the line.
fn write_path_byte(out: &mut Vec<u8>, start: usize, byte: u8) {
    if byte == b'?' || grammar::target_end(&[byte], 0) == 0 {
        return;
    }
    if out.len() == start && byte != b'/' {
        out.push(b'/');
    }
    out.push(byte);
}

/// Appends a generated field. One whose name or value breaks the grammar is left out: it would be
/// read as other fields than are meant.
pub(super) fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let is_valid = is_field(name, value);
    debug_assert!(
        is_valid,
        "{:?}: {:?}",
        name.escape_ascii(),
        value.escape_ascii()
    );
    if is_valid {
        write_line(out, name, value);
    }
}

/// Returns whether name and value keep the grammar of fields.
pub(crate) fn is_field(name: &[u8], value: &[u8]) -> bool {
    grammar::is_token_text(name) && grammar::is_value_text(value)
}

#[inline]
fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn write_status_line(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write_number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn write_framing(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            write_number(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
}

pub(super) fn write_persistence(out: &mut Vec<u8>, persistence: Persistence, client: Version) {
    match (persistence, client) {
        (Persistence::Close, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (Persistence::Keep, Version::Http10) => {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        (Persistence::Keep, Version::Http11) => {}
    }
}

fn write_options(out: &mut Vec<u8>, options: [(bool, &str); 3]) {
    let mut separator: &[u8] = b"Connection: ";
    for (_, option) in options.iter().filter(|(wanted, _)| *wanted) {
        out.extend_from_slice(separator);
        out.extend_from_slice(option.as_bytes());
        separator = b", ";
    }
    if separator == b", " {
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a number in decimal digits.
pub(super) fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(Decimal::of(number).digits());
}
