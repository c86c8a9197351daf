//! Checks invariants of field blocks, and of the heads that are made of them; used by the fuzzer
//! and the tests.
//!
//! An input is a sequence of field blocks of one connection, each after an octet with its length.

use evenkeel_wire::http::{
    Fault, Framing, HeadLimits, KnownName, Limit, Parsed, RequestHead, Underscores,
};
use evenkeel_wire::http2::hpack::{Decoder, Encoder, FieldSink, Indexing};
use evenkeel_wire::http2::{HeadListLimits, RequestFacts, RequestText, TrailerText};

/// Name and value.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

const TABLE_BYTES: u32 = 4_096;

/// Limits that no input of the tests reaches.
const LIST_LIMITS: HeadListLimits = HeadListLimits {
    bytes_max: 1 << 22,
    fields_max: 50_000,
};
const HEAD_LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 1 << 22,
    target_bytes_max: 16_384,
    fields_max: 50_000,
    underscores: Underscores::Keep,
};

/// Sink that takes up to a number of fields.
struct List {
    fields: Vec<Field>,
    max: usize,
}

impl FieldSink for List {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        assert!(self.fields.len() < self.max, "a field after a refusal");
        self.fields.push((name.to_vec(), value.to_vec()));
        self.fields.len() < self.max
    }
}

/// Panics if decoding the blocks that `bytes` are violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let mut connection = Connection::new();
    let mut rest = bytes;
    while let [length, after @ ..] = rest {
        let (block, after) = after.split_at(after.len().min(usize::from(*length)));
        let Some(fields) = connection.check_block(block) else {
            return;
        };
        for end in [false, true] {
            check_request(&fields, end);
        }
        check_trailers(&fields);
        rest = after;
    }
}

/// Decoders of the same blocks.
pub(crate) struct Connection {
    ours: Decoder,
    /// Another implementation.
    other: httlib_hpack::Decoder<'static>,
    /// Decoder with a sink that takes one field.
    refusing: Decoder,
    encoder: Encoder,
    /// Decoders of what the encoder writes.
    again: Decoder,
    other_again: httlib_hpack::Decoder<'static>,
    blocks: usize,
}

impl Connection {
    pub(crate) fn new() -> Self {
        let other = || httlib_hpack::Decoder::with_dynamic_size(TABLE_BYTES);
        Connection {
            ours: Decoder::new(TABLE_BYTES),
            other: other(),
            refusing: Decoder::new(TABLE_BYTES),
            encoder: Encoder::new(),
            again: Decoder::new(TABLE_BYTES),
            other_again: other(),
            blocks: 0,
        }
    }

    /// Checks a block, and what the encoder makes of its fields. Returns them; `None` if the block
    /// is refused.
    pub(crate) fn check_block(&mut self, block: &[u8]) -> Option<Vec<Field>> {
        let mut list = List {
            fields: Vec::new(),
            max: usize::MAX,
        };
        let result = self.ours.decode(block, &mut list);
        let mut first = List {
            fields: Vec::new(),
            max: 1,
        };
        assert_eq!(self.refusing.decode(block, &mut first), result);
        assert_eq!(first.fields.first(), list.fields.first());
        result.ok()?;
        assert_eq!(decode_other(&mut self.other, block), list.fields);
        self.check_encoder(&list.fields);
        Some(list.fields)
    }

    /// Checks that fields are decoded as they are encoded, with names in lower case.
    pub(crate) fn check_encoder(&mut self, fields: &[Field]) {
        self.blocks += 1;
        let mut block = Vec::new();
        if self.blocks.is_multiple_of(5) {
            let bytes = [4_096, 0, 100, 65_536, 200][self.blocks / 5 % 5];
            self.encoder.set_table_max(bytes);
        }
        self.encoder.begin(&mut block);
        let start = block.len();
        for (index, (name, value)) in fields.iter().enumerate() {
            let indexing = match (self.blocks + index) % 4 {
                0 => Indexing::Incremental,
                1 => Indexing::Without,
                2 => Indexing::Repeated,
                _ => Indexing::Never,
            };
            self.encoder.field(&mut block, name, value, indexing);
        }
        let octets = |(name, value): &Field| name.len() + value.len() + 9;
        assert!(block.len() - start <= fields.iter().map(octets).sum());
        let mut list = List {
            fields: Vec::new(),
            max: usize::MAX,
        };
        self.again.decode(&block, &mut list).expect("a valid block");
        let lower = |(name, value): &Field| (name.to_ascii_lowercase(), value.clone());
        let expect: Vec<Field> = fields.iter().map(lower).collect();
        assert_eq!(list.fields, expect);
        assert_eq!(decode_other(&mut self.other_again, &block), expect);
    }
}

fn decode_other(decoder: &mut httlib_hpack::Decoder<'static>, block: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    decoder
        .decode(&mut block.to_vec(), &mut fields)
        .expect("another decoder accepts the block");
    let pairs = fields.into_iter().map(|(name, value, _)| (name, value));
    pairs.collect()
}

/// Checks that the text of an accepted request is a head with the same meaning. Returns whether the
/// request is accepted.
pub(crate) fn check_request(fields: &[Field], end: bool) -> bool {
    let mut request = RequestText::new();
    request.begin(&LIST_LIMITS);
    let _all = (fields.iter()).all(|(name, value)| request.field(name, value));
    let Ok(facts) = request.finish(end) else {
        return false;
    };
    for (name, value) in fields {
        let is_value = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
        assert!(value.iter().all(is_value), "{}", value.escape_ascii());
        let is_name = |byte: &u8| !matches!(byte, 0..=32 | b'A'..=b'Z' | 127..);
        assert!(name.iter().all(is_name), "{}", name.escape_ascii());
        assert!(!name.get(1..).unwrap_or_default().contains(&b':'));
    }
    let regular = fields.iter().position(|(name, _)| name[0] != b':');
    let pseudo = &fields[..regular.unwrap_or(fields.len())];
    assert!(
        !fields[pseudo.len()..]
            .iter()
            .any(|(name, _)| name[0] == b':')
    );
    let expected = expected_lines(fields, end, facts);
    check_text(request.text(), pseudo, &expected, end, facts);
    true
}

fn value_of<'a>(fields: &'a [Field], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut values = fields.iter().filter(|(name, _)| name == wanted);
    let value = values.next().map(|(_, value)| &value[..]);
    assert!(values.next().is_none() || wanted == b"cookie");
    value
}

/// Returns the fields that the text must have, in their order.
fn expected_lines(fields: &[Field], end: bool, facts: RequestFacts) -> Vec<Field> {
    let authority = value_of(fields, b":authority");
    let host = authority.map(|authority| (b"Host".to_vec(), authority.to_vec()));
    let kept = fields.iter().filter(|(name, _)| {
        let is_host_again = name == b"host" && authority.is_some();
        name[0] != b':' && name != b"cookie" && !is_host_again
    });
    let mut lines: Vec<Field> = host.into_iter().chain(kept.cloned()).collect();
    let cookies = fields.iter().filter(|(name, _)| name == b"cookie");
    let parts: Vec<&[u8]> = cookies.map(|(_, value)| &value[..]).collect();
    if !parts.is_empty() {
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        lines.push((b"cookie".to_vec(), parts.join(&b"; "[..])));
    }
    let method = value_of(fields, b":method").expect("a method");
    match (facts.content_length, end) {
        (Some(length), true) => assert_eq!(length, 0),
        (Some(_), false) => {}
        (None, false) => lines.push((b"transfer-encoding".to_vec(), b"chunked".to_vec())),
        (None, true) if matches!(method, b"POST" | b"PUT" | b"PATCH") => {
            lines.push((b"content-length".to_vec(), b"0".to_vec()));
        }
        (None, true) => {}
    }
    lines
}

fn check_text(text: &[u8], pseudo: &[Field], expected: &[Field], end: bool, facts: RequestFacts) {
    check_httparse(text, expected);
    let mut head = RequestHead::new();
    match head.parse(text, &HEAD_LIMITS) {
        Parsed::Complete => {}
        Parsed::Incomplete => panic!("{}", text.escape_ascii()),
        Parsed::Invalid(fault) => {
            let named = expected
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(b"host"));
            match fault {
                Fault::HostMissing => assert!(!named),
                Fault::Expectation | Fault::MethodTooLong | Fault::Limit(Limit::TargetBytes(_)) => {
                }
                other => panic!("{other:?}: {}", text.escape_ascii()),
            }
            return;
        }
    }
    assert_eq!(head.length(), text.len());
    assert_eq!(Some(head.method_text(text)), value_of(pseudo, b":method"));
    let target = head.path_and_query(text);
    let path = [target.path, target.query].concat();
    assert_eq!(Some(&path[..]), value_of(pseudo, b":path"));
    if let Some(authority) = value_of(pseudo, b":authority") {
        assert_eq!(head.authority(text), Some(authority));
    }
    let framing = match (facts.content_length, end) {
        (Some(length), _) => Framing::Length(length),
        (None, false) => Framing::Chunked,
        (None, true) if head.has(KnownName::ContentLength) => Framing::Length(0),
        (None, true) => Framing::None,
    };
    assert_eq!(head.framing(), framing);
    assert!(head.keeps_connection() && head.upgrade().is_none());
    // Names that pose as others are dropped, as they are in HTTP/1.1.
    let mut found = head.fields(text).peekable();
    let mut dropped = 0;
    for (name, value) in expected {
        match found.next_if(|field| field.name == name && field.value == value) {
            Some(_) => {}
            None => {
                assert!(name.iter().any(|byte| matches!(byte, b'_' | b'.')));
                dropped += 1;
            }
        }
    }
    assert_eq!(found.next(), None);
    assert_eq!(head.fields_dropped(), dropped);
}

/// Checks that another parser of HTTP/1.1 reads the expected fields.
fn check_httparse(text: &[u8], expected: &[Field]) {
    let mut memory = vec![httparse::EMPTY_HEADER; expected.len() + 1];
    let mut other = httparse::Request::new(&mut memory);
    let status = other.parse(text);
    let whole = Ok(httparse::Status::Complete(text.len()));
    assert_eq!(status, whole, "{}", text.escape_ascii());
    let found = other
        .headers
        .iter()
        .map(|field| (field.name.as_bytes(), field.value));
    let expected = expected.iter().map(|(name, value)| (&name[..], &value[..]));
    assert!(found.eq(expected), "{}", text.escape_ascii());
}

/// Checks that accepted trailers are some of the fields, in their order, and have no line ends.
fn check_trailers(fields: &[Field]) {
    let mut trailers = TrailerText::new();
    trailers.begin(&LIST_LIMITS, Underscores::Drop);
    let all = (fields.iter()).all(|(name, value)| trailers.field(name, value));
    assert_eq!(trailers.finish().is_ok(), all);
    if !all {
        return;
    }
    let mut before = fields.iter();
    for field in trailers.fields() {
        assert!(before.any(|(name, value)| (&name[..], &value[..]) == (field.name, field.value)));
        assert!(!field.name.is_empty() && field.name[0] != b':');
        let value = field.value;
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        assert!(!matches!(
            field.known,
            KnownName::ContentLength | KnownName::TransferEncoding | KnownName::Host
        ));
    }
}
