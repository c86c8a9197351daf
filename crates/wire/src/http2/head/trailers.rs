//! Trailers of a request or response.

use std::ops::Range;

use super::checks::{self, Spent};
use super::{HeadFault, HeadListLimits};
use crate::http::head::may_be_trailer;
use crate::http::{Field, KnownName, Underscores, hops};
use crate::http2::hpack::FieldSink;

/// Trailers of a message, whose memory is used again by the next one. They are used as
/// [`super::RequestText`] is.
#[derive(Debug)]
pub struct TrailerText {
    bytes: Vec<u8>,
    places: Vec<Place>,
    limits: HeadListLimits,
    underscores: Underscores,
    spent: Spent,
    fault: Option<HeadFault>,
}

/// Place of a trailer field.
#[derive(Debug)]
struct Place {
    known: KnownName,
    name: Range<u32>,
    value: Range<u32>,
}

impl Default for TrailerText {
    fn default() -> Self {
        TrailerText {
            bytes: Vec::new(),
            places: Vec::new(),
            limits: HeadListLimits::default(),
            underscores: Underscores::Drop,
            spent: Spent::default(),
            fault: None,
        }
    }
}

impl FieldSink for TrailerText {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        if self.fault.is_none() {
            self.fault = self.take(name, value).err();
        }
        self.fault.is_none()
    }
}

impl TrailerText {
    /// Creates trailers without memory.
    #[must_use]
    pub fn new() -> Self {
        TrailerText::default()
    }

    /// Begins the trailers of a message, and keeps the memory of those before.
    pub fn begin(&mut self, limits: &HeadListLimits, underscores: Underscores) {
        self.bytes.clear();
        self.places.clear();
        self.limits = *limits;
        self.underscores = underscores;
        self.spent = Spent::default();
        self.fault = None;
    }

    /// Ends the trailers. A fault is one of the whole message.
    pub fn finish(&self) -> Result<(), HeadFault> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Returns the fields that may be passed on, as those of a chunked body are.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.places.iter().map(|place| Field {
            known: place.known,
            name: self.text(&place.name),
            value: self.text(&place.value),
        })
    }

    fn text(&self, range: &Range<u32>) -> &[u8] {
        let range = range.start as usize..range.end as usize;
        self.bytes.get(range).unwrap_or_default()
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadFault> {
        self.spent.add_bytes(name, value, &self.limits)?;
        self.spent.add_field(&self.limits)?;
        if name.first() == Some(&b':') {
            // RFC 9113 §8.1: "Trailers MUST NOT include pseudo-header fields".
            return Err(HeadFault::Malformed("a pseudo-field in trailers"));
        }
        let known = checks::check_field(name, value)?;
        if may_be_trailer(name) && !hops::poses(name, self.underscores) {
            let mut append = |text: &[u8]| {
                let start = self.bytes.len() as u32;
                self.bytes.extend_from_slice(text);
                start..self.bytes.len() as u32
            };
            let (name, value) = (append(name), append(value));
            self.places.push(Place { known, name, value });
        }
        Ok(())
    }
}
