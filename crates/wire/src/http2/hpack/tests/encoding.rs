//! Decisions of the encoder.

use super::*;

fn list(name: &str, value: &str) -> Vec<Owned> {
    vec![(name.to_owned(), value.to_owned())]
}

#[test]
fn names_are_written_in_lower_case_and_found_in_any() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    for (name, indexing, first) in [
        ("X-Some-Name", Indexing::Incremental, 0x40),
        ("x-sOME-nAME", Indexing::Incremental, 0xbe),
        ("X-SOME-NAME", Indexing::Without, 0xbe),
        ("x-SOME-name", Indexing::Never, 0x1f),
    ] {
        let block = encode(&mut encoder, &list(name, "v"), indexing);
        assert_eq!(block[0], first, "{name}");
        let decoded = decode(&mut decoder, &block);
        assert_eq!(decoded, Ok(list("x-some-name", "v")), "{name}");
    }
    // Names that differ in one bit of a letter only.
    for (a, b) in [("x^^^^^^^^", "x~~~~~~~~"), ("a-b", "a_b")] {
        for name in [a, b, a] {
            let block = encode(&mut encoder, &list(name, "v"), Indexing::Incremental);
            assert_eq!(decode(&mut decoder, &block), Ok(list(name, "v")));
        }
    }
}

/// The mark of an entry is made of a part of its value only.
#[test]
fn values_that_differ_in_one_byte_are_different() {
    for length in [1, 7, 8, 9, 16, 17, 40, 64] {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
        for place in 0..=length {
            let mut value = "v".repeat(length);
            if place < length {
                value.replace_range(place..=place, "w");
            }
            for _ in 0..2 {
                let list = list("x", &value);
                let block = encode(&mut encoder, &list, Indexing::Incremental);
                assert_eq!(decode(&mut decoder, &block), Ok(list), "{length}, {place}");
            }
        }
    }
}

#[test]
fn every_static_entry_is_found() {
    for (place, (name, value)) in table::STATIC.iter().enumerate() {
        let (name, value) = (
            str::from_utf8(name).unwrap(),
            str::from_utf8(value).unwrap(),
        );
        let mut encoder = Encoder::new();
        let block = encode(&mut encoder, &list(name, value), Indexing::Without);
        let index = place as u8 + 1;
        match value {
            // Fields without a value hardly occur: only the name is found.
            "" if index < 15 => assert_eq!(block, [index, 0], "{name}"),
            "" => assert_eq!(block, [0x0f, index - 15, 0], "{name}"),
            _ => assert_eq!(block, [0x80 | index], "{name}: {value}"),
        }
        let decoded = decode(&mut Decoder::new(0), &block);
        assert_eq!(decoded, Ok(list(name, value)));
    }
}

#[test]
fn secrets_are_never_in_a_table() {
    let mut encoder = Encoder::new();
    for _ in 0..3 {
        let block = encode(&mut encoder, &list("set-cookie", "a=b"), Indexing::Never);
        assert_eq!(block, hex("1f28 03 613d62"));
        let block = encode(&mut encoder, &list("x", "b"), Indexing::Never);
        assert_eq!(block, hex("10 0178 0162"));
    }
    assert_eq!(encoder.table.len(), 0);
    // Not even if the same field was added as one that is none.
    encode(&mut encoder, &list("x", "b"), Indexing::Incremental);
    let block = encode(&mut encoder, &list("x", "b"), Indexing::Never);
    assert_eq!(block, hex("1f2f 0162"));
}

#[test]
fn fields_are_added_once_they_are_repeated() {
    let mut encoder = Encoder::new();
    let mut kinds = |value: &str| {
        let block = encode(&mut encoder, &list("x", value), Indexing::Repeated);
        block[0] & 0xf0
    };
    assert_eq!(kinds("a"), 0x00);
    assert_eq!(kinds("a"), 0x40);
    assert_eq!(kinds("a"), 0xb0);
    assert_eq!(kinds("b"), 0x00);
    for unique in 0..16 {
        assert_eq!(kinds(&format!("u{unique}")), 0x00);
    }
    assert_eq!(kinds("b"), 0x00);
    assert_eq!(kinds("a"), 0xb0);
    let large = "v".repeat(1_200);
    for _ in 0..3 {
        assert_eq!(kinds(&large), 0x00);
    }
}

#[test]
fn the_table_follows_the_peers_setting() {
    let mut encoder = Encoder::new();
    let mut begun = |settings: &[u32]| {
        for &bytes in settings {
            encoder.set_table_max(bytes);
        }
        let mut block = Vec::new();
        encoder.begin(&mut block);
        block
    };
    assert_eq!(begun(&[]), hex(""));
    assert_eq!(begun(&[4_096]), hex(""));
    assert_eq!(begun(&[65_536]), hex(""));
    assert_eq!(begun(&[100]), hex("3f45"));
    assert_eq!(begun(&[100]), hex(""));
    assert_eq!(begun(&[0]), hex("20"));
    assert_eq!(begun(&[100_000]), hex("3fe11f"));
    assert_eq!(begun(&[0, 4_096]), hex("20 3fe11f"));
    assert_eq!(begun(&[50, 30, 40]), hex("3e 3f09"));
    assert_eq!(begun(&[4_096, 0]), hex("20"));
}

#[test]
fn entries_are_dropped_when_the_setting_is_lowered() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    for round in 0..4 {
        encoder.set_table_max([4_096, 40, 4_096, 0][round]);
        for name in ["a", "b", "c"] {
            for _ in 0..2 {
                let block = encode(&mut encoder, &list(name, "v"), Indexing::Incremental);
                assert_eq!(decode(&mut decoder, &block), Ok(list(name, "v")));
            }
        }
        assert_eq!(entries(&encoder.table), entries(&decoder.table));
        assert_eq!(encoder.table.len(), [3, 1, 3, 0][round]);
    }
}
