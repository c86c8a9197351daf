//! The Huffman code.

use super::*;

fn encoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    huffman::encode(&mut out, text.iter().copied());
    out
}

fn decoded(code: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let mut out = Vec::new();
    huffman::decode(&mut out, code).map(|()| out)
}

/// Codes of RFC 7541, appendix B, as bits: the first and last of lengths, and others.
#[test]
fn codes_are_those_of_the_table() {
    for (byte, bits) in [
        (b'0', "00000"),
        (b't', "01001"),
        (b' ', "010100"),
        (b'u', "101101"),
        (b':', "1011100"),
        (b'z', "1111011"),
        (b'&', "11111000"),
        (b'Z', "11111101"),
        (b'!', "1111111000"),
        (b'?', "1111111100"),
        (b'\'', "11111111010"),
        (b'#', "111111111010"),
        (0, "1111111111000"),
        (b'^', "11111111111100"),
        (b'<', "111111111111100"),
        (b'\\', "1111111111111110000"),
        (128, "11111111111111100110"),
        (0x01, "11111111111111111011000"),
        (9, "111111111111111111101010"),
        (199, "1111111111111111111101100"),
        (0xc0, "11111111111111111111100000"),
        (203, "111111111111111111111011110"),
        (2, "1111111111111111111111100010"),
        (0xf9, "1111111111111111111111111110"),
        (b'\n', "111111111111111111111111111100"),
        (b'\r', "111111111111111111111111111101"),
        (22, "111111111111111111111111111110"),
    ] {
        let code = encoded(&[byte]);
        let octets: String = code.iter().map(|octet| format!("{octet:08b}")).collect();
        let (code, padding) = octets.split_at(bits.len());
        assert_eq!((code, padding.len() < 8), (bits, true), "{byte}");
        assert!(padding.bytes().all(|bit| bit == b'1'), "{byte}");
    }
}

/// All pairs of bytes after each number of bytes, so that each code is at each place of a word.
#[test]
fn every_text_is_decoded_as_it_was_encoded() {
    for first in 0..=255 {
        for second in 0..=255 {
            let text = [b'0', first, second, b'a', second];
            assert_eq!(decoded(&encoded(&text)).as_deref(), Ok(&text[..]));
        }
        for length in 0..40 {
            let mut text = vec![b'-'; length];
            text.push(first);
            text.extend(std::iter::repeat_n(b'e', length));
            assert_eq!(decoded(&encoded(&text)), Ok(text));
        }
    }
}

#[test]
fn no_code_of_two_octets_is_decoded_to_another_code() {
    let mut valid = 0;
    for first in 0..=255 {
        for second in 0..=255 {
            if let Ok(text) = decoded(&[first, second]) {
                assert_eq!(encoded(&text), [first, second]);
                valid += 1;
            }
        }
    }
    assert!(valid > 300, "{valid}");
}

#[test]
fn a_string_is_huffman_code_only_where_that_is_shorter() {
    for (value, string) in [
        ("302", "82 6402"),
        ("307", "03 333037"),
        ("", "00"),
        ("a", "01 61"),
        ("~~", "02 7e7e"),
    ] {
        let block = encode(
            &mut Encoder::new(),
            &[("x".to_owned(), value.to_owned())],
            Indexing::Without,
        );
        assert_eq!(block, hex(&format!("00 01 78 {string}")), "{value}");
    }
    // The length of the code is an integer of one, two and three octets.
    for length in [
        126, 127, 200, 201, 202, 203, 204, 205, 1_000, 20_000, 40_000,
    ] {
        let value = "0".repeat(length);
        let list = vec![("x".to_owned(), value)];
        let block = encode(&mut Encoder::new(), &list, Indexing::Without);
        assert!(block.len() < length * 2 / 3 + 8);
        assert_eq!(decode(&mut Decoder::new(0), &block), Ok(list));
    }
}
