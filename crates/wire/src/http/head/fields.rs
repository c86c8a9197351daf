//! Fields of a head as spans of its bytes, and what they say of the connection.

use super::{KnownName, Span, Underscores, Version};
use crate::http::fault::{Fault, Limit};
use crate::http::grammar;
use crate::http::hops;

/// The most options that `Connection` may name besides those known: each is compared with all
/// fields.
const OPTIONS_MAX: usize = 32;

/// Place of a field in the bytes of its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct FieldSpan {
    name: Span,
    value: Span,
    known: KnownName,
    place: Place,
    nominated: bool,
}

/// Place of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The line is `name: value` with one space, CR and LF, so that it can be copied as it is.
    Copyable,
    /// Range of the head.
    Line,
    /// Range of the memory of values that were joined from several lines.
    Joined,
}

/// Field of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name, if the code knows it.
    pub known: KnownName,
    /// Name as the sender wrote it.
    pub name: &'a [u8],
    /// Value without optional whitespace around it.
    pub value: &'a [u8],
}

/// Number of occurrences of a field that must be single, with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::http) enum Occurrence {
    #[default]
    None,
    /// Index of the field.
    Once(usize),
    Repeated,
}

impl Occurrence {
    fn add(&mut self, index: usize) {
        *self = match self {
            Occurrence::None => Occurrence::Once(index),
            _ => Occurrence::Repeated,
        };
    }
}

/// Fields of a head, in their order. The memory is kept from one head to the next.
#[derive(Debug, Default)]
pub(in crate::http) struct Fields {
    spans: Vec<FieldSpan>,
    /// Values that were joined from several lines.
    joined: Vec<u8>,
    /// Bits of the known names.
    seen: u64,
    /// Fields that were dropped for their names.
    dropped: u32,
    /// Number of lines, those of dropped fields included.
    lines: usize,
    pub(in crate::http) options: Options,
    pub(in crate::http) host: Occurrence,
    pub(in crate::http) content_length: Occurrence,
    pub(in crate::http) transfer_encoding: Occurrence,
    pub(in crate::http) upgrade: Occurrence,
    pub(in crate::http) expect: Occurrence,
}

/// Options in the fields `Connection` and `TE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::http) struct Options {
    pub(in crate::http) close: bool,
    pub(in crate::http) keep_alive: bool,
    pub(in crate::http) upgrade: bool,
    /// `TE` has `trailers`.
    pub(in crate::http) trailers: bool,
}

/// Kind of the message whose fields are parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Kind {
    Request(Underscores),
    Response,
}

/// Result of reading one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Line {
    /// A field, and the offset of the next line.
    Field(usize),
    /// The empty line, and the offset of what follows the head.
    End(usize),
    Incomplete,
}

impl Fields {
    pub(in crate::http) fn clear(&mut self) {
        let (mut spans, mut joined) = (
            std::mem::take(&mut self.spans),
            std::mem::take(&mut self.joined),
        );
        spans.clear();
        joined.clear();
        *self = Fields {
            spans,
            joined,
            ..Fields::default()
        };
    }

    /// Reads lines from `at` on, and moves it. Returns the length of the head, if it is complete.
    pub(in crate::http) fn read(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        kind: Kind,
        fields_max: usize,
    ) -> Result<Option<usize>, Fault> {
        loop {
            match self.line(bytes, *at, kind)? {
                Line::Field(next) => *at = next,
                Line::End(length) => {
                    self.conclude(bytes)?;
                    return Ok(Some(length));
                }
                Line::Incomplete => return Ok(None),
            }
            if self.lines > fields_max {
                return Err(Fault::Limit(Limit::Fields(fields_max)));
            }
        }
    }

    #[inline]
    fn line(&mut self, bytes: &[u8], at: usize, kind: Kind) -> Result<Line, Fault> {
        let (name_end, aliased) = grammar::name_end(bytes, at);
        let colon = match bytes.get(name_end) {
            Some(b':') if name_end > at => name_end,
            None => return Ok(Line::Incomplete),
            Some(_) => match self.odd_line(bytes, at, name_end, kind)? {
                Odd::Line(line) => return Ok(line),
                Odd::Colon(colon) => colon,
            },
        };
        let mut start = colon.wrapping_add(1);
        while bytes
            .get(start)
            .is_some_and(|&byte| grammar::is_space(byte))
        {
            start = start.wrapping_add(1);
        }
        let stop = grammar::value_end(bytes, start);
        let Some(next) = grammar::line_end(bytes, stop)? else {
            return Ok(Line::Incomplete);
        };
        let mut end = stop;
        while end > start
            && bytes
                .get(end.wrapping_sub(1))
                .is_some_and(|&b| grammar::is_space(b))
        {
            end = end.wrapping_sub(1);
        }
        self.lines = self.lines.wrapping_add(1);
        let name = Span::new(at, name_end);
        let name_bytes = name.of(bytes);
        if aliased
            && let Kind::Request(underscores) = kind
            && hops::poses(name_bytes, underscores)
        {
            self.dropped = self.dropped.saturating_add(1);
            return Ok(Line::Field(next));
        }
        let known = KnownName::of_token(name_bytes);
        let one_space =
            start == name_end.wrapping_add(2) && bytes.get(colon.wrapping_add(1)) == Some(&b' ');
        self.spans.push(FieldSpan {
            name,
            value: Span::new(start, end),
            known,
            place: if one_space && end == stop {
                Place::Copyable
            } else {
                Place::Line
            },
            nominated: false,
        });
        self.seen |= known.bit();
        Ok(Line::Field(next))
    }

    /// Reads a line in which a byte other than a colon follows the name, if there is a name.
    #[cold]
    fn odd_line(
        &mut self,
        bytes: &[u8],
        at: usize,
        name_end: usize,
        kind: Kind,
    ) -> Result<Odd, Fault> {
        let byte = bytes.get(name_end).copied().unwrap_or_default();
        let offset = grammar::offset(name_end);
        if name_end == at {
            return match byte {
                b'\r' | b'\n' => Ok(Odd::Line(
                    grammar::line_end(bytes, at)?.map_or(Line::Incomplete, Line::End),
                )),
                b':' => Err(Fault::EmptyName { at: offset }),
                b' ' | b'\t' if kind == Kind::Response => self.join(bytes, at).map(Odd::Line),
                b' ' | b'\t' => Err(Fault::Folded { at: offset }),
                byte => Err(Fault::Name { at: offset, byte }),
            };
        }
        if !grammar::is_space(byte) {
            return Err(Fault::Name { at: offset, byte });
        }
        if kind != Kind::Response {
            return Err(Fault::SpaceBeforeColon { at: offset });
        }
        // RFC 9112 §5.1: "A proxy MUST remove any such whitespace from a response message".
        let rest = bytes.get(name_end..).unwrap_or_default();
        let spaces = rest.iter().position(|&byte| !grammar::is_space(byte));
        let Some(colon) = spaces.map(|spaces| name_end.saturating_add(spaces)) else {
            return Ok(Odd::Line(Line::Incomplete));
        };
        match bytes.get(colon) {
            Some(b':') => Ok(Odd::Colon(colon)),
            byte => Err(Fault::Name {
                at: grammar::offset(colon),
                byte: byte.copied().unwrap_or_default(),
            }),
        }
    }

    /// Joins a line that begins with a space to the value before it, with one space (RFC 9112
    /// §5.2).
    fn join(&mut self, bytes: &[u8], at: usize) -> Result<Line, Fault> {
        let Some(last) = self.spans.last_mut() else {
            return Err(Fault::Folded {
                at: grammar::offset(at),
            });
        };
        let stop = grammar::value_end(bytes, at);
        let Some(next) = grammar::line_end(bytes, stop)? else {
            return Ok(Line::Incomplete);
        };
        if last.place != Place::Joined {
            let start = self.joined.len();
            self.joined.extend_from_slice(last.value.of(bytes));
            last.value = Span::new(start, start);
            last.place = Place::Joined;
        }
        let text = grammar::trim(bytes.get(at..stop).unwrap_or_default());
        if !text.is_empty() {
            if self.joined.len() > last.value.start as usize {
                self.joined.push(b' ');
            }
            self.joined.extend_from_slice(text);
        }
        last.value.end = grammar::offset(self.joined.len());
        self.lines = self.lines.wrapping_add(1);
        Ok(Line::Field(next))
    }

    /// Gathers what the fields say of the framing and of the connection.
    fn conclude(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        const OF_INTEREST: u64 = KnownName::Connection.bit()
            | KnownName::ContentLength.bit()
            | KnownName::Expect.bit()
            | KnownName::Host.bit()
            | KnownName::Te.bit()
            | KnownName::TransferEncoding.bit()
            | KnownName::Upgrade.bit();
        let mut options = Options::default();
        let mut nominations = 0_usize;
        for (index, span) in self.spans.iter().enumerate() {
            if span.known.bit() & OF_INTEREST == 0 {
                continue;
            }
            match span.known {
                KnownName::Connection => {
                    let value = value_of(span, bytes, &self.joined);
                    nominations = nominations.saturating_add(options.connection(value)?);
                }
                KnownName::Te => {
                    options.trailers |= has_trailers(value_of(span, bytes, &self.joined));
                }
                KnownName::ContentLength => self.content_length.add(index),
                KnownName::Expect => self.expect.add(index),
                KnownName::Host => self.host.add(index),
                KnownName::TransferEncoding => self.transfer_encoding.add(index),
                KnownName::Upgrade => self.upgrade.add(index),
                _ => {}
            }
        }
        self.options = options;
        if nominations > OPTIONS_MAX {
            return Err(Fault::TooManyOptions);
        }
        if nominations > 0 {
            self.nominate(bytes);
        }
        Ok(())
    }

    /// Marks the fields that `Connection` names.
    #[cold]
    fn nominate(&mut self, bytes: &[u8]) {
        for index in 0..self.spans.len() {
            let Some(span) = self.spans.get(index) else {
                return;
            };
            let name = span.name.of(bytes);
            let named = hops::may_be_nominated(name)
                && self.all(bytes, KnownName::Connection).any(|value| {
                    grammar::list(value).any(|option| option.eq_ignore_ascii_case(name))
                });
            if let Some(span) = self.spans.get_mut(index) {
                span.nominated = named;
            }
        }
    }

    pub(in crate::http) fn dropped(&self) -> u32 {
        self.dropped
    }

    pub(in crate::http) fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub(in crate::http) fn has(&self, known: KnownName) -> bool {
        self.seen & known.bit() != 0
    }

    pub(in crate::http) fn iter<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
        self.spans.iter().map(move |span| self.field(span, bytes))
    }

    #[inline]
    pub(in crate::http) fn field<'a>(&'a self, span: &FieldSpan, bytes: &'a [u8]) -> Field<'a> {
        Field {
            known: span.known,
            name: span.name.of(bytes),
            value: value_of(span, bytes, &self.joined),
        }
    }

    /// Returns the value of the field with an index.
    pub(in crate::http) fn at<'a>(&'a self, index: usize, bytes: &'a [u8]) -> &'a [u8] {
        let span = self.spans.get(index);
        span.map_or(&[], |span| value_of(span, bytes, &self.joined))
    }

    /// Returns the place of a request field's value. Those of requests are never joined.
    pub(in crate::http) fn span_of_value(&self, index: usize) -> Span {
        self.spans
            .get(index)
            .map_or_else(Span::default, |span| span.value)
    }

    /// Returns the values of all fields of a known name, in their order.
    pub(in crate::http) fn all<'a>(
        &'a self,
        bytes: &'a [u8],
        known: KnownName,
    ) -> impl Iterator<Item = &'a [u8]> {
        let spans = if self.has(known) { &*self.spans } else { &[] };
        let named = spans.iter().filter(move |span| span.known == known);
        named.map(|span| value_of(span, bytes, &self.joined))
    }

    /// Returns the spans with what of each the edit needs.
    pub(in crate::http) fn spans(&self) -> &[FieldSpan] {
        &self.spans
    }
}

/// Rest of reading a line of an unusual form.
enum Odd {
    Line(Line),
    /// Offset of the colon.
    Colon(usize),
}

#[inline]
fn value_of<'a>(span: &FieldSpan, bytes: &'a [u8], joined: &'a [u8]) -> &'a [u8] {
    match span.place {
        Place::Joined => span.value.of(joined),
        Place::Copyable | Place::Line => span.value.of(bytes),
    }
}

impl FieldSpan {
    /// Returns the bounds of the line with its CR LF, if it can be copied as it is.
    #[inline]
    pub(in crate::http) fn copyable(&self) -> Option<(usize, usize)> {
        let end = (self.value.end as usize).saturating_add(2);
        (self.place == Place::Copyable).then_some((self.name.start as usize, end))
    }

    #[inline]
    pub(in crate::http) fn known(&self) -> KnownName {
        self.known
    }

    /// Returns whether `Connection` names the field.
    #[inline]
    pub(in crate::http) fn is_nominated(&self) -> bool {
        self.nominated
    }
}

impl Options {
    /// Adds the options of a field `Connection`. Returns how many of them name other fields.
    fn connection(&mut self, value: &[u8]) -> Result<usize, Fault> {
        let mut others = 0_usize;
        for option in grammar::list(value) {
            if !grammar::is_token_text(option) {
                return Err(Fault::Connection);
            }
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                others = others.saturating_add(1);
            }
        }
        Ok(others)
    }

    /// Returns whether the connection stays open after a message of a version (RFC 9112 §9.3).
    pub(in crate::http) fn keeps_connection(self, version: Version) -> bool {
        match version {
            _ if self.close => false,
            Version::Http11 => true,
            Version::Http10 => self.keep_alive,
        }
    }
}

/// Returns whether a value of `TE` has the member `trailers` (RFC 9110 §10.1.4).
fn has_trailers(value: &[u8]) -> bool {
    grammar::list(value).any(|member| member.eq_ignore_ascii_case(b"trailers"))
}
