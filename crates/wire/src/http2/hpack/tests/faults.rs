//! Blocks that are refused, and their limits.

use super::*;
use CompressionError::{
    Huffman, Index, Integer, SizeUpdateMissing, SizeUpdatePlace, SizeUpdateTooLarge, Truncated,
};

#[track_caller]
fn refused(block: &str) -> CompressionError {
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    decode(&mut decoder, &hex(block)).expect_err("an error")
}

#[test]
fn a_block_must_not_end_within_a_field() {
    let whole = hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
    for end in 1..whole.len() {
        let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
        assert_eq!(decode(&mut decoder, &whole[..end]), Err(Truncated), "{end}");
        assert_eq!(decoder.table.len(), 0);
    }
    assert_eq!(decode(&mut Decoder::new(0), &[]), Ok(vec![]));
    for block in ["ff", "ff80", "7f", "0f", "1f80", "3f", "418c f1e3", "42"] {
        assert_eq!(refused(block), Truncated, "{block}");
    }
}

#[test]
fn integers_have_at_most_5_octets_and_32_bits() {
    let read = |octets: &str, bits| integer::read(&hex(octets), bits).map(|(value, _)| value);
    assert_eq!(read("ff 80ff ffff 0f", 7), Ok(u32::MAX));
    assert_eq!(read("ff 81ff ffff 0f", 7), Err(Integer));
    assert_eq!(read("ff ffff ffff 0f", 7), Err(Integer));
    assert_eq!(read("ff ffff ffff 7f", 7), Err(Integer));
    assert_eq!(read("ff 8080 8080 80", 7), Err(Integer));
    // Zeros at the end change no value; up to 5 octets are read.
    assert_eq!(read("ff 8080 8080 00", 7), Ok(127));
    assert_eq!(read("ff 8080 8080 8000", 7), Err(Integer));
    assert_eq!(refused("ff 8080 8080 8000"), Integer);
    assert_eq!(refused("0f ffff ffff ff0f"), Integer);
    assert_eq!(refused("00 7f ffff ffff ff0f"), Integer);
}

#[test]
fn every_integer_is_read_as_it_was_written() {
    let around = |value: u64| value.saturating_sub(2)..=value + 2;
    for bits in 1..=8 {
        let powers = (0..=32).flat_map(|power| around(1 << power));
        for value in powers.filter_map(|value| u32::try_from(value).ok()) {
            let mut out = Vec::new();
            integer::write(&mut out, 0, bits, value);
            out.push(0xa5);
            assert_eq!(integer::read(&out, bits), Ok((value, &[0xa5][..])));
        }
    }
}

#[test]
fn indices_are_those_of_entries() {
    for block in [
        "80",
        "be",
        "7e 00",
        "0f 2f 00",
        "ff ff ff ff 0f",
        "1f 2f 00",
    ] {
        assert_eq!(refused(block), Index, "{block}");
    }
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let block = hex("4001 6101 62 be bf");
    assert_eq!(decode(&mut decoder, &block), Err(Index));
}

#[test]
fn huffman_codes_end_with_fewer_than_8_ones() {
    // "a" is 00011, then padding. The first is the code of 5 bits with 3 ones.
    assert_eq!(
        decode(&mut Decoder::new(0), &hex("0081 1f 81 1f")),
        Ok(fields(&["a: a"]))
    );
    for code in [
        "81 18",                      // zeros
        "81 1d",                      // a zero within
        "82 1f ff",                   // 11 bits of padding
        "81 ff",                      // 8 bits of padding
        "84 ff ff ff ff",             // EOS, and two ones
        "85 1f ff ff ff ff",          // a, then EOS
        "84 ff ff ff fc",             // EOS, then zeros
        "88 ff ff ff ff ff ff ff ff", // EOS in the fast loop
        "89 1f ff ff ff ff ff ff ff ff",
        "83 ff ff fe", // a long code that is cut
    ] {
        assert_eq!(refused(&format!("0001 61 {code}")), Huffman, "{code}");
        assert_eq!(refused(&format!("00 {code} 01 61")), Huffman, "{code}");
    }
}

#[test]
fn the_tables_size_changes_at_the_beginning_only() {
    let accepted = |block: &str| {
        let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
        let fields = decode(&mut decoder, &hex(block)).expect("a block");
        (fields.len(), decoder.table.size_max())
    };
    assert_eq!(accepted("3fe11f 82"), (1, 4_096));
    assert_eq!(accepted("20 82"), (1, 0));
    assert_eq!(accepted("20 3fe11f 82"), (1, 4_096));
    assert_eq!(accepted("30"), (0, 16));
    assert_eq!(refused("3fe21f 82"), SizeUpdateTooLarge);
    assert_eq!(refused("3fff ffff ff0f"), Integer);
    assert_eq!(refused("82 20"), SizeUpdatePlace);
    assert_eq!(refused("82 20 82"), SizeUpdatePlace);
    assert_eq!(refused("20 20 20"), SizeUpdatePlace);
    let mut decoder = Decoder::new(65_536);
    assert_eq!(decode(&mut decoder, &hex("3fe1ff03")), Ok(vec![]));
    assert_eq!(decoder.table.size_max(), 65_536);
}

#[test]
fn a_lowered_setting_must_be_obeyed_once_it_is_acknowledged() {
    let mut decoder = Decoder::new(100);
    // The peer has not seen the setting.
    assert_eq!(
        decode(&mut decoder, &hex("3fe11f 82")).map(|f| f.len()),
        Ok(1)
    );
    decoder.setting_acknowledged();
    assert_eq!(decode(&mut decoder, &hex("82")), Err(SizeUpdateMissing));
    let mut decoder = Decoder::new(100);
    decoder.setting_acknowledged();
    assert_eq!(decode(&mut decoder, &hex("3f46")), Err(SizeUpdateTooLarge));
    let mut decoder = Decoder::new(100);
    decoder.setting_acknowledged();
    assert_eq!(
        decode(&mut decoder, &hex("3f45 82")).map(|f| f.len()),
        Ok(1)
    );
    assert_eq!(decoder.table.size_max(), 100);
    assert_eq!(decode(&mut decoder, &hex("82")).map(|f| f.len()), Ok(1));
    // A peer that had lowered it by itself need not do so again.
    let mut decoder = Decoder::new(100);
    assert_eq!(decode(&mut decoder, &hex("20")), Ok(vec![]));
    decoder.setting_acknowledged();
    assert_eq!(decode(&mut decoder, &hex("82")).map(|f| f.len()), Ok(1));
}

#[test]
fn a_refused_list_is_decoded_to_its_end_for_the_table() {
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let mut list = List {
        max: 2,
        ..List::default()
    };
    let block = hex("82 4001 6101 62 4001 6301 64 be bf 80");
    assert_eq!(decoder.decode(&block, &mut list), Err(Index));
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    list.fields.clear();
    assert_eq!(decoder.decode(&block[..block.len() - 1], &mut list), Ok(()));
    assert_eq!(list.fields, fields(&[":method: GET", "a: b"]));
    assert_eq!(
        decode(&mut decoder, &hex("be bf")),
        Ok(fields(&["c: d", "a: b"]))
    );
}

#[test]
fn every_error_has_a_reason_of_its_own() {
    let all = [
        Truncated,
        Integer,
        Index,
        Huffman,
        SizeUpdatePlace,
        SizeUpdateTooLarge,
        SizeUpdateMissing,
    ];
    let reasons: std::collections::HashSet<_> = all.iter().map(|e| e.reason()).collect();
    assert_eq!(reasons.len(), all.len());
}
