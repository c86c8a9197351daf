//! Packets, payloads of several packets, numbers.

use super::*;

#[test]
fn a_whole_packet_is_read_and_any_beginning_of_it_says_what_it_needs() {
    let bytes = b"\x09\0\0\x02\x03SELECT 1rest";
    let whole = Frame {
        sequence: 2,
        payload: b"\x03SELECT 1",
    };
    assert_eq!(frame(bytes, PAYLOAD_LENGTH_MAX), Parsed::Frame(whole, 13));
    for cut in 0..13 {
        let need = if cut < 4 { 4 } else { 13 };
        assert_eq!(
            frame(&bytes[..cut], PAYLOAD_LENGTH_MAX),
            Parsed::Incomplete { need }
        );
    }
}

#[test]
fn a_packet_that_may_not_be_so_long_is_refused_before_it_arrives() {
    let (length, length_max) = (16_385, PRE_AUTH_LENGTH_MAX);
    let too_long = Parsed::Invalid(ProtocolError::TooLong { length, length_max });
    assert_eq!(frame(b"\x01\x40\0\0", length_max), too_long);
    let (length, length_max) = (PAYLOAD_LENGTH_MAX, PAYLOAD_LENGTH_MAX);
    let too_long = Parsed::Invalid(ProtocolError::TooLong { length, length_max });
    assert_eq!(frame(b"\xff\xff\xff\0", PAYLOAD_LENGTH_MAX), too_long);
}

/// Splits a payload of this length, and joins it again in pieces; returns the packets' lengths.
fn split_and_join(length: usize, piece: usize) -> Vec<u32> {
    let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    let headers: Vec<_> = Splitter::new(length as u64, 250).collect();
    let mut bytes = Vec::new();
    let mut rest = payload.as_slice();
    for header in &headers {
        bytes.extend_from_slice(&header.bytes());
        let (packet, behind) = rest.split_at(header.payload_length as usize);
        bytes.extend_from_slice(packet);
        rest = behind;
    }
    assert!(rest.is_empty());
    let (mut joiner, mut joined, mut at, mut end) = (Joiner::new(250), Vec::new(), 0, 0);
    loop {
        match joiner.next(&bytes[at..end]) {
            Piece::Bytes {
                passed,
                payload,
                ends,
            } => {
                at += passed + payload.len();
                joined.extend_from_slice(payload);
                if ends {
                    break;
                }
            }
            Piece::Wait { need } => {
                assert!(need > end - at && end < bytes.len());
                end = (end + piece).min(bytes.len());
            }
            Piece::Invalid(fault) => panic!("{fault}"),
        }
    }
    assert!(joined == payload && at == bytes.len());
    headers.iter().map(|header| header.payload_length).collect()
}

#[test]
fn long_payloads_are_split_and_joined_as_they_stream() {
    let full = PAYLOAD_LENGTH_MAX;
    assert_eq!(split_and_join(0, 1), [0]);
    assert_eq!(split_and_join(1000, 7), [1000]);
    assert_eq!(split_and_join(full as usize - 1, 1 << 20), [full - 1]);
    assert_eq!(split_and_join(full as usize, 1 << 20), [full, 0]);
    assert_eq!(split_and_join(full as usize + 5, 65_537), [full, 5]);
    assert_eq!(split_and_join(2 * full as usize, 1 << 22), [full, full, 0]);
}

#[test]
fn a_payload_whose_packets_are_out_of_order_is_refused() {
    let mut joiner = Joiner::new(0);
    assert_eq!(
        joiner.next(b"\x01\0\0\x01a"),
        Piece::Invalid(ProtocolError::Sequence(1))
    );
}

#[test]
fn numbers_are_changed_in_passing() {
    let mut bytes = *b"\x03\0\0\xffabc\0\0\0\x00\x01\0\0\x01x";
    let mut renumber = Renumber::default();
    let (first, second) = bytes.split_at_mut(5);
    renumber.apply(first, 2);
    renumber.apply(second, 2);
    assert_eq!(&bytes, b"\x03\0\0\x01abc\0\0\0\x02\x01\0\0\x03x");
}
