//! Headers as real senders write them, whole, truncated and damaged.

use super::Parsed::{Frame, Incomplete, Invalid};
use super::*;

/// Parses `bytes` and every prefix. A correct header must be `Incomplete` up to its last byte and
/// then stay the same frame whatever follows. A wrong one must stay wrong.
#[track_caller]
fn check(bytes: &[u8], expect: Parsed) {
    assert_eq!(parse(bytes), expect, "{:?}", String::from_utf8_lossy(bytes));
    let mut settled = None;
    for cut in 0..=bytes.len() {
        let parsed = parse(&bytes[..cut]);
        match (parsed, settled) {
            (Incomplete, None) => {}
            (Incomplete, Some(earlier)) => panic!("{earlier:?} became Incomplete at {cut}"),
            (Frame(_, consumed), None) => {
                assert_eq!(consumed, cut, "a frame before its last byte");
                settled = Some(parsed);
            }
            (Invalid(_), None) => settled = Some(parsed),
            (Frame(..), Some(earlier)) => assert_eq!(parsed, earlier, "at {cut}"),
            (Invalid(_), Some(earlier)) => {
                assert!(
                    matches!(earlier, Invalid(_)),
                    "{earlier:?} became invalid at {cut}"
                );
            }
        }
    }
    if let Frame(_, consumed) = expect {
        let mut longer = bytes.to_vec();
        longer.extend_from_slice(b"PROXY \r\n\0GET / HTTP/1.1\r\n\r\n");
        assert_eq!(parse(&longer), expect, "what follows must not matter");
        assert_eq!(parse(&bytes[..consumed]), expect);
    }
}

fn header(source: &str, destination: &str) -> Header {
    Header {
        source: Some(source.parse().unwrap()),
        destination: Some(destination.parse().unwrap()),
    }
}

#[track_caller]
fn check_line(line: &str, source: &str, destination: &str) {
    check(
        line.as_bytes(),
        Frame(header(source, destination), line.len()),
    );
}

#[track_caller]
fn check_fault(bytes: impl AsRef<[u8]>, fault: HeaderError) {
    check(bytes.as_ref(), Invalid(fault));
}

/// Returns how many bytes of `bytes` are needed until the result is final.
fn bytes_until_invalid(bytes: &[u8]) -> usize {
    (0..=bytes.len())
        .find(|cut| matches!(parse(&bytes[..*cut]), Invalid(_)))
        .unwrap()
}

fn v2(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).unwrap().to_be_bytes();
    [
        b"\r\n\r\n\0\r\nQUIT\n".as_slice(),
        &[command, family],
        &length,
        block,
    ]
    .concat()
}

const IPV4_BLOCK: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 0x01, 0xbb];

fn v2_with_tlvs(tlvs: &[u8]) -> Vec<u8> {
    v2(0x21, 0x11, &[IPV4_BLOCK.as_slice(), tlvs].concat())
}

#[test]
fn the_specifications_example_line_is_read() {
    let line = "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n";
    check_line(line, "192.168.0.1:56324", "192.168.0.11:443");
}

#[test]
fn the_specifications_longest_lines_are_read() {
    let most = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let ends = format!("[{most}]:65535");
    let tcp4 = "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n";
    assert_eq!(tcp4.len(), 56);
    check_line(tcp4, "255.255.255.255:65535", "255.255.255.255:65535");
    let tcp6 = format!("PROXY TCP6 {most} {most} 65535 65535\r\n");
    assert_eq!(tcp6.len(), 104);
    check_line(&tcp6, &ends, &ends);
    let unknown = format!("PROXY UNKNOWN {most} {most} 65535 65535\r\n");
    assert_eq!(unknown.len(), LINE_LENGTH_MAX);
    check(
        unknown.as_bytes(),
        Frame(Header::default(), LINE_LENGTH_MAX),
    );
}

#[test]
fn ipv6_lines_are_read_in_every_spelling() {
    check_line("PROXY TCP6 ::1 :: 1 0\r\n", "[::1]:1", "[::]:0");
    check_line(
        "PROXY TCP6 2001:DB8::A 2001:db8::b 9 8\r\n",
        "[2001:db8::a]:9",
        "[2001:db8::b]:8",
    );
    check_line(
        "PROXY TCP6 1:2:3:4:5:6:7:: ::2:3:4:5:6:7:8 1 2\r\n",
        "[1:2:3:4:5:6:7:0]:1",
        "[0:2:3:4:5:6:7:8]:2",
    );
    let mapped = "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.7 1 2\r\n";
    check_line(mapped, "[::ffff:192.0.2.1]:1", "[::ffff:198.51.100.7]:2");
}

#[test]
fn unknown_means_the_sockets_address_whatever_else_the_line_says() {
    for rest in [
        b"".as_slice(),
        b" ",
        b" x \0\xff y",
        b" 1.1.1.1 2.2.2.2 1 2",
    ] {
        let line = [b"PROXY UNKNOWN", rest, b"\r\n"].concat();
        check(&line, Frame(Header::default(), line.len()));
    }
}

#[test]
fn a_stranger_is_refused_at_the_first_byte_that_differs() {
    check_fault("GET / HTTP/1.1\r\n\r\n", HeaderError::NotProxy);
    check_fault("POST / HTTP/1.1\r\n\r\n", HeaderError::NotProxy);
    check_fault("\r\n\r\nGET / HTTP/1.1\r\n", HeaderError::NotProxy);
    check_fault([0x16, 3, 1, 2, 0], HeaderError::NotProxy);
    assert_eq!(bytes_until_invalid(b"GET /"), 1);
    assert_eq!(bytes_until_invalid(b"POST /"), 2);
    assert_eq!(bytes_until_invalid(b"PROXY TCP5"), 10);
    assert_eq!(bytes_until_invalid(b"PROXY TCP4 1.2.3.256 "), 20);
    assert_eq!(bytes_until_invalid(b"PROXY TCP4 1.2.3.4 1.2.3.4 65536"), 32);
    assert_eq!(bytes_until_invalid(b"PROXY TCP6 ::1:2:3:4:5:6:7:8"), 27);
}

#[test]
fn a_line_that_is_almost_right_is_refused() {
    let cases: [(&str, HeaderError); 27] = [
        ("PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n", HeaderError::Protocol),
        ("PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n", HeaderError::Protocol),
        ("PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n", HeaderError::Protocol),
        ("PROXY TCP4x 1.1.1.1 2.2.2.2 1 2\r\n", HeaderError::Protocol),
        ("PROXY UNKNOWNX\r\n", HeaderError::Protocol),
        ("PROXY\tTCP4 1.1.1.1 2.2.2.2 1 2\r\n", HeaderError::NotProxy),
        ("PROXY \r\n", HeaderError::Protocol),
        ("PROXY TCP4\r\n", HeaderError::LineEnd),
        ("PROXY TCP4 \r\n", HeaderError::Address),
        ("PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n", HeaderError::Address),
        ("PROXY TCP4 1.1.1.1  2.2.2.2 1 2\r\n", HeaderError::Address),
        ("PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n", HeaderError::Address),
        ("PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n", HeaderError::Address),
        ("PROXY TCP4 1.1.1.1 ::1 1 2\r\n", HeaderError::Address),
        ("PROXY TCP6 1.1.1.1 ::1 1 2\r\n", HeaderError::Address),
        ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", HeaderError::Address),
        ("PROXY TCP6 1::2::3 ::1 1 2\r\n", HeaderError::Address),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n", HeaderError::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n", HeaderError::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n", HeaderError::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1  2\r\n", HeaderError::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", HeaderError::Port),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n", HeaderError::LineEnd),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", HeaderError::LineEnd),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n", HeaderError::LineEnd),
        ("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\r\n", HeaderError::LineEnd),
        ("PROXY UNKNOWN a\nb\r\n", HeaderError::LineEnd),
    ];
    for (line, fault) in cases {
        check_fault(line, fault);
    }
}

#[test]
fn a_line_without_an_end_is_refused_as_soon_as_no_end_fits() {
    let mut line = b"PROXY UNKNOWN ".to_vec();
    line.resize(LINE_LENGTH_MAX + 1, b'x');
    check_fault(&line, HeaderError::LineTooLong);
    assert_eq!(bytes_until_invalid(&line), LINE_LENGTH_MAX - 1);
    line.truncate(LINE_LENGTH_MAX - 1);
    line.extend_from_slice(b"\r\n");
    check_fault(&line, HeaderError::LineTooLong);
}

/// Fails if an ending is removed from `v1::ENDINGS`, or if `address_begun` returns `Ok`.
#[test]
fn an_unfinished_line_is_incomplete_exactly_if_something_completes_it() {
    let lines = [
        "PROXY TCP4 1.20.0.255 1.2.3.4 655 0\r\n",
        "PROXY TCP6 1:2::a:9 ::ffff:1.2.3.4 9 8\r\n",
    ];
    let heads = [
        "", "0", ":", "::", ".0", "0.0", ".0.0", "0.0.0", ".0.0.0", "0.0.0.0",
    ];
    let tails = [
        "\n",
        "\r\n",
        " 0\r\n",
        " 0 0\r\n",
        " :: 0 0\r\n",
        " 0.0.0.0 0 0\r\n",
    ];
    let completes = |start: &str| {
        let whole = |head, tail| parse(format!("{start}{head}{tail}").as_bytes());
        heads.iter().any(|head| {
            tails
                .iter()
                .any(|tail| matches!(whole(head, tail), Frame(..)))
        })
    };
    for (line, position) in lines
        .iter()
        .flat_map(|line| (11..line.len()).map(move |at| (line, at)))
    {
        for byte in " .:019afg\r\n".chars() {
            let start = format!("{}{byte}", &line[..position]);
            match parse(start.as_bytes()) {
                Incomplete => assert!(completes(&start), "nothing completes {start:?}"),
                Invalid(fault) => assert!(!completes(&start), "{fault}: {start:?}"),
                Frame(..) => {}
            }
        }
    }
}

#[test]
fn a_binary_header_is_read() {
    let ipv4 = v2(0x21, 0x11, &IPV4_BLOCK);
    check(
        &ipv4,
        Frame(header("192.0.2.1:56324", "198.51.100.7:443"), 28),
    );
    let mut block = [0; 36];
    block[15] = 1;
    block[16] = 0x20;
    block[31] = 2;
    block[33] = 5;
    block[34] = 0xff;
    let ipv6 = v2(0x21, 0x21, &block);
    check(&ipv6, Frame(header("[::1]:5", "[2000::2]:65280"), 52));
}

#[test]
fn local_and_other_families_mean_the_sockets_address() {
    let none = |bytes: &[u8]| check(bytes, Frame(Header::default(), bytes.len()));
    none(&v2(0x20, 0x00, b""));
    none(&v2(0x20, 0x11, &IPV4_BLOCK));
    none(&v2(0x20, 0xff, b"the family is ignored"));
    none(&v2(0x21, 0x00, b"so are an unspecified family's bytes"));
    none(&v2(0x21, 0x10, b""));
    none(&v2(0x21, 0x12, &IPV4_BLOCK));
    none(&v2(0x21, 0x22, &[0; 36]));
    none(&v2(0x21, 0x31, &[b'/'; 216]));
    none(&v2(0x21, 0x32, &[0; 216]));
}

#[test]
fn a_binary_header_that_is_almost_right_is_refused() {
    check_fault(v2(0x11, 0x11, &IPV4_BLOCK), HeaderError::Version(1));
    check_fault(v2(0x31, 0x11, &IPV4_BLOCK), HeaderError::Version(3));
    check_fault(v2(0x22, 0x11, &IPV4_BLOCK), HeaderError::Command(2));
    check_fault(v2(0x21, 0x41, &IPV4_BLOCK), HeaderError::Family(0x41));
    check_fault(v2(0x21, 0x13, &IPV4_BLOCK), HeaderError::Family(0x13));
    check_fault(
        v2(0x21, 0x11, &IPV4_BLOCK[..11]),
        HeaderError::BlockTooShort(11),
    );
    check_fault(v2(0x21, 0x21, &[0; 35]), HeaderError::BlockTooShort(35));
    check_fault(v2(0x21, 0x31, &[0; 215]), HeaderError::BlockTooShort(215));
    check_fault(
        v2(0x21, 0x00, &vec![0; BLOCK_LENGTH_MAX + 1]),
        HeaderError::BlockTooLong(4097),
    );
    let longest = v2(0x21, 0x00, &vec![0; BLOCK_LENGTH_MAX]);
    check(&longest, Frame(Header::default(), LENGTH_MAX));
}

#[test]
fn a_length_out_of_bounds_is_refused_before_the_block_arrives() {
    assert_eq!(bytes_until_invalid(&v2(0x21, 0x11, &IPV4_BLOCK[..11])), 16);
    assert_eq!(bytes_until_invalid(&v2(0x21, 0x00, &[0; 60_000])), 16);
    assert_eq!(bytes_until_invalid(&v2(0x51, 0x11, &IPV4_BLOCK)), 13);
    assert_eq!(bytes_until_invalid(&v2(0x21, 0x51, &IPV4_BLOCK)), 14);
}

#[test]
fn tlvs_are_skipped_if_they_fill_the_block() {
    let ends = header("192.0.2.1:56324", "198.51.100.7:443");
    for tlvs in [
        b"\x04\0\0".as_slice(),
        b"\x02\0\x05a.com\xea\0\x01x",
        &[4; 3 + 0x404],
    ] {
        let bytes = v2_with_tlvs(tlvs);
        check(&bytes, Frame(ends, bytes.len()));
    }
    for tlvs in [
        b"\x04".as_slice(),
        b"\x04\0",
        b"\x04\0\x01",
        b"\x04\0\0\x04\0\x02x",
        b"\x04\xff\xff",
    ] {
        check_fault(v2_with_tlvs(tlvs), HeaderError::Tlv);
    }
    assert_eq!(bytes_until_invalid(&v2_with_tlvs(b"\x04\0\x09abc")), 31);
}

/// Header as the network balancer of a public cloud sends it: checksum, end point's name, padding.
fn captured_from_a_cloud_balancer() -> Vec<u8> {
    let addresses = [
        0xac, 0x1f, 7, 0x71, 0xac, 0x1f, 10, 0x1f, 0xc8, 0xf2, 0, 0x50,
    ];
    let tlvs = b"\x03\0\x04\xe8\xd6\x89\x2d\xea\0\x17\x01vpce-08d2bf15fac5001c9\x04\0\x24";
    v2(0x21, 0x11, &[addresses.as_slice(), tlvs, &[0; 36]].concat())
}

#[test]
fn a_checksum_is_verified() {
    let bytes = captured_from_a_cloud_balancer();
    check(
        &bytes,
        Frame(header("172.31.7.113:51442", "172.31.10.31:80"), 100),
    );
    for position in (16..28).chain(31..35).chain(38..61).chain(64..100) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x10;
        check_fault(&damaged, HeaderError::Checksum);
    }
    check_fault(v2_with_tlvs(b"\x03\0\x03abc"), HeaderError::Tlv);
    check_fault(
        v2_with_tlvs(b"\x03\0\x04\0\0\0\0\x03\0\x04\0\0\0\0"),
        HeaderError::Tlv,
    );
}

#[test]
fn what_is_encoded_is_read_back() {
    let ends = [
        "0.0.0.0:0",
        "192.0.2.1:56324",
        "255.255.255.255:65535",
        "[::]:0",
        "[::1]:80",
        "[::ffff:1.2.3.4]:5",
        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
    ];
    for (from, to) in ends
        .iter()
        .flat_map(|from| ends.iter().map(move |to| (from, to)))
    {
        let (source, destination): (SocketAddr, SocketAddr) =
            (from.parse().unwrap(), to.parse().unwrap());
        let expect = if source.is_ipv4() == destination.is_ipv4() {
            header(from, to)
        } else {
            let wide = |end: SocketAddr| Some(SocketAddr::new(mapped(end.ip()).into(), end.port()));
            Header {
                source: wide(source),
                destination: wide(destination),
            }
        };
        for bytes in [
            encode_v1(source, destination),
            encode_v2(source, destination),
        ] {
            check(&bytes, Frame(expect, bytes.len()));
        }
    }
    check(encode_v1_unknown(), Frame(Header::default(), 15));
    check(encode_v2_local(), Frame(Header::default(), 16));
}

#[test]
fn an_encoded_line_has_the_form_of_the_specification() {
    let line = |from: &str, to: &str| {
        String::from_utf8(encode_v1(from.parse().unwrap(), to.parse().unwrap())).unwrap()
    };
    assert_eq!(
        line("192.168.0.1:56324", "192.168.0.11:443"),
        "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n"
    );
    assert_eq!(
        line("192.0.2.1:1", "[2001:db8::1]:2"),
        "PROXY TCP6 ::ffff:c000:201 2001:db8::1 1 2\r\n"
    );
}
