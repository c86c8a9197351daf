//! Tests of heads and trailers.

use super::hpack::{Decoder, Encoder, FieldSink, TABLE_BYTES_DEFAULT};
use super::*;
use crate::http::{HeadLimits, Limit, Method, Parsed, RequestHead, ResponseHead, Underscores};

mod connect;
mod malformed;
mod requests;
mod responses;
mod trailers;
mod written_requests;

/// The pseudo-fields of a request.
const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/"),
    (":authority", "h"),
];

/// Returns pseudo-fields and further fields.
fn with<'a>(pseudo: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [pseudo, more].concat()
}

/// Writes a list of fields to a sink, as a decoder does.
fn write_to(sink: &mut impl FieldSink, list: &[(&str, &str)]) {
    let _all = (list.iter()).all(|(name, value)| sink.field(name.as_bytes(), value.as_bytes()));
}

/// Returns the text of a request, or its fault.
fn text_of(list: &[(&str, &str)], end: bool) -> Result<String, HeadFault> {
    let mut request = RequestText::new();
    request.begin(&HeadListLimits::default());
    write_to(&mut request, list);
    request.finish(end)?;
    Ok(String::from_utf8(request.text().to_vec()).expect("UTF-8"))
}

/// Returns the lines of fields of the text of a request.
#[track_caller]
fn lines_of(list: &[(&str, &str)], end: bool) -> Vec<String> {
    let text = text_of(list, end).expect("a valid request");
    let lines = text.strip_suffix("\r\n\r\n").expect("an empty line");
    lines.split("\r\n").skip(1).map(str::to_owned).collect()
}
