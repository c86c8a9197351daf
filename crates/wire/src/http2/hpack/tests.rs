//! Tests of HPACK.

use super::*;

#[derive(Default)]
struct List(Vec<(Vec<u8>, Vec<u8>)>);

impl FieldSink for List {
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.0.push((name.to_vec(), value.to_vec()));
        true
    }
}

#[test]
fn a_list_is_decoded_as_it_was_encoded() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    for _ in 0..3 {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        encoder.field(&mut block, b":status", b"200", Indexing::Repeated);
        encoder.field(&mut block, b"X-Name", b"a value", Indexing::Incremental);
        let mut list = List::default();
        decoder.decode(&block, &mut list).unwrap();
        let fields: Vec<(&[u8], &[u8])> = list.0.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        assert_eq!(
            fields,
            [(&b":status"[..], &b"200"[..]), (b"x-name", b"a value")]
        );
    }
}
