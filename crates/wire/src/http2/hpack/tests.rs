//! Tests of HPACK: each rule of RFC 7541, and its examples.

use super::table::Table;
use super::*;

mod encoding;
mod examples;
mod faults;
mod strings;
mod tables;

/// Name and value.
type Owned = (String, String);

/// Sink that keeps up to a number of fields.
#[derive(Debug, Default)]
struct List {
    fields: Vec<Owned>,
    max: usize,
}

impl FieldSink for List {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        assert!(self.fields.len() < self.max, "a field after a refusal");
        self.fields.push((text(name), text(value)));
        self.fields.len() < self.max
    }
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Owned>, CompressionError> {
    let mut list = List {
        max: usize::MAX,
        ..List::default()
    };
    decoder.decode(block, &mut list).map(|()| list.fields)
}

/// Returns the bytes that hexadecimal digits write.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|c| c.to_digit(16)).collect();
    assert_eq!(digits.len() % 2, 0);
    let byte = |pair: &[u32]| (pair[0] * 16 + pair[1]) as u8;
    digits.chunks(2).map(byte).collect()
}

/// Returns the fields that lines of `name: value` write.
fn fields(lines: &[&str]) -> Vec<Owned> {
    let field = |line: &&str| {
        let (name, value) = line[1..].split_once(": ").expect("a field");
        (format!("{}{name}", &line[..1]), value.to_owned())
    };
    lines.iter().map(field).collect()
}

/// Returns the entries of a table, newest first.
fn entries(table: &Table) -> Vec<Owned> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (0..table.len())
        .map(|age| table.get(age).expect("an entry"))
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

fn encode(encoder: &mut Encoder, fields: &[Owned], indexing: Indexing) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.field(&mut block, name.as_bytes(), value.as_bytes(), indexing);
    }
    block
}
