//! Fields of heads (RFC 9110 §5, RFC 9112 §5).

use super::*;

fn with_field(line: &str) -> Vec<u8> {
    request_text("GET / HTTP/1.1", &format!("Host: h\r\n{line}\r\n"))
}

#[test]
fn names_are_tokens_directly_before_the_colon() {
    for (line, fault) in [
        ("A : b", Fault::SpaceBeforeColon { at: 26 }),
        ("A\t: b", Fault::SpaceBeforeColon { at: 26 }),
        (": b", Fault::EmptyName { at: 25 }),
        (
            "A",
            Fault::Name {
                at: 26,
                byte: b'\r',
            },
        ),
        ("A b", Fault::SpaceBeforeColon { at: 26 }),
        ("A(b: c", Fault::Name { at: 26, byte: b'(' }),
        ("A\u{e4}: c", Fault::Name { at: 26, byte: 0xc3 }),
        (
            "A-long-name-with-a-wrong/byte: c",
            Fault::Name { at: 49, byte: b'/' },
        ),
        ("A\0: c", Fault::Name { at: 26, byte: 0 }),
        ("\u{b}A: c", Fault::Name { at: 25, byte: 0xb }),
        ("\"A\": c", Fault::Name { at: 25, byte: b'"' }),
    ] {
        assert_request_fault(&with_field(line), fault);
    }
    for name in [
        "A",
        "!#$%&'*+-.^`|~9aZ",
        "x-1",
        "abcdefg",
        "abcdefgh",
        "abcdefghi",
    ] {
        let bytes = with_field(&format!("{name}:b"));
        let head = complete_request(&bytes);
        let last = head.fields(&bytes).last().map(|field| field.name);
        assert_eq!(last, Some(name.as_bytes()));
    }
}

#[test]
fn values_have_no_control_but_tabs() {
    for byte in 0..=255_u8 {
        for length in [0, 3, 7, 8, 9, 31, 32, 33, 40] {
            let padding = "x".repeat(length);
            let start = with_field(&format!("A: {padding}"));
            let mut bytes = start[..start.len() - 4].to_vec();
            let at = bytes.len() as u32;
            bytes.push(byte);
            bytes.extend_from_slice(b"yz\r\n\r\n");
            let allowed = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            let fault = match byte {
                b'\r' => Fault::BareCarriageReturn { at },
                b'\n' => Fault::BareLineFeed { at },
                byte => Fault::Byte { at, byte },
            };
            let (head, parsed) = request(&bytes);
            if !allowed {
                assert_eq!(parsed, Parsed::Invalid(fault), "{byte} after {length}");
                continue;
            }
            assert_eq!(parsed, Parsed::Complete, "{byte} after {length}");
            let value = head.fields(&bytes).last().map(|field| field.value.to_vec());
            let expect = [padding.as_bytes(), &[byte], b"yz"].concat();
            assert_eq!(value.as_deref(), Some(grammar::trim(&expect)));
        }
    }
}

#[test]
fn every_byte_of_a_name_is_checked_as_the_table_says() {
    for byte in 0..=255_u8 {
        for length in [1, 6, 7, 8, 15, 16] {
            let mut bytes = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
            bytes.extend(vec![b'x'; length]);
            bytes.push(byte);
            bytes.extend_from_slice(b"y: z\r\n\r\n");
            let (_, parsed) = request(&bytes);
            let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let accepted = is_token || byte == b':';
            assert_eq!(
                parsed == Parsed::Complete,
                accepted,
                "{byte} after {length}"
            );
        }
    }
}

#[test]
fn space_around_values_is_not_part_of_them() {
    for (line, value) in [
        ("A:b", "b"),
        ("A: \t b c \t", "b c"),
        ("A:", ""),
        ("A: \t ", ""),
        ("A:b\tc", "b\tc"),
        ("A:: b:", ": b:"),
    ] {
        let bytes = with_field(line);
        let head = complete_request(&bytes);
        let last = head.fields(&bytes).last().map(|field| field.value);
        assert_eq!(last, Some(value.as_bytes()), "{line:?}");
        let edit = RequestEdit::default();
        let expect = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {value}\r\n\r\n");
        assert_eq!(sent_on(&bytes, &edit), expect);
    }
}

#[test]
fn continued_lines_are_refused_in_requests_and_joined_in_responses() {
    assert_request_fault(&with_field("A: b\r\n c"), Fault::Folded { at: 31 });
    assert_request_fault(&with_field("A: b\r\n\t"), Fault::Folded { at: 31 });
    let first = request_text("GET / HTTP/1.1", " Host: h\r\n");
    assert_request_fault(&first, Fault::Folded { at: 16 });
    for (line, value) in [
        ("A: b\r\n c", "b c"),
        ("A: b\r\n \t c \r\n\td", "b c d"),
        ("A:\r\n b", "b"),
        ("A: b\r\n \r\n c", "b c"),
        ("A:\r\n ", ""),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\nB: c\r\n{line}\r\nC: d\r\n\r\n").into_bytes();
        let head = complete_response(&bytes);
        let values: Vec<&[u8]> = head.fields(&bytes).map(|field| field.value).collect();
        assert_eq!(values, [b"c", value.as_bytes(), b"d"], "{line:?}");
        let expect = format!(
            "HTTP/1.1 200 OK\r\nB: c\r\nA: {value}\r\nC: d\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        assert_eq!(answered(&bytes, &ResponseEdit::default()), expect);
    }
    let (_, parsed) = response(b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n");
    assert_eq!(parsed, Parsed::Invalid(Fault::Folded { at: 17 }));
    // The framing is decided on the joined value.
    let (_, parsed) = response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip,\r\n chunked\r\n\r\n");
    assert_eq!(parsed, Parsed::Invalid(Fault::TransferCoding));
    let (_, parsed) = response(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n");
    assert_eq!(parsed, Parsed::Invalid(Fault::ContentLength));
}

#[test]
fn a_space_before_the_colon_is_removed_from_responses() {
    let bytes = b"HTTP/1.1 200 OK\r\nA \t: b\r\nContent-Length : 0\r\n\r\n";
    let head = complete_response(bytes);
    assert_eq!(head.framing(), Framing::Length(0));
    let expect = "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(answered(bytes, &ResponseEdit::default()), expect);
    let (_, parsed) = response(b"HTTP/1.1 200 OK\r\nA b: c\r\n\r\n");
    assert_eq!(parsed, Parsed::Invalid(Fault::Name { at: 19, byte: b'b' }));
}

#[test]
fn names_with_underscores_are_dropped_and_counted_unless_kept() {
    let lines = "X_A: 1\r\nX.A: 2\r\nContent_Length: 5\r\nTransfer.Encoding: chunked\r\nX-A: 3\r\n";
    let bytes = request_text("GET / HTTP/1.1", &format!("Host: h\r\n{lines}"));
    for (underscores, kept, dropped) in [
        (Underscores::Drop, &["Host", "X.A", "X-A"][..], 3),
        (Underscores::Keep, &["Host", "X_A", "X.A", "X-A"], 2),
    ] {
        let limits = HeadLimits {
            underscores,
            ..HeadLimits::default()
        };
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&bytes, &limits), Parsed::Complete);
        let names = head
            .fields(&bytes)
            .map(|field| String::from_utf8_lossy(field.name));
        assert!(names.eq(kept.iter().copied()));
        assert_eq!(
            (head.fields_dropped(), head.framing()),
            (dropped, Framing::None)
        );
    }
    // The value of a dropped field is checked, too.
    let bytes = with_field("X_A: \u{1}");
    assert_request_fault(&bytes, Fault::Byte { at: 30, byte: 1 });
    // Responses keep them.
    let bytes = b"HTTP/1.1 204 x\r\nX_A: b\r\n\r\n";
    assert_eq!(complete_response(bytes).field_count(), 1);
}

#[test]
fn known_names_are_recognised_in_any_case_and_no_others() {
    for (text, name) in [
        ("content-length", KnownName::ContentLength),
        ("CONTENT-LENGTH", KnownName::ContentLength),
        ("te", KnownName::Te),
        ("eTag", KnownName::ETag),
        ("x-forwarded-host", KnownName::XForwardedHost),
        ("x-forwarded-port", KnownName::XForwardedPort),
        ("Content-Lengti", KnownName::Other),
        ("Content_Length", KnownName::Other),
        ("Content\rLength", KnownName::Other),
        ("Content-Length ", KnownName::Other),
        ("\u{14}\u{05}", KnownName::Other),
        ("TTP2-Settings", KnownName::Other),
        ("HTTP\u{12}-Settings", KnownName::Other),
        ("", KnownName::Other),
    ] {
        assert_eq!(KnownName::of(text.as_bytes()), name, "{text:?}");
    }
    assert_eq!(
        KnownName::of(KnownName::XRealIp.text().as_bytes()),
        KnownName::XRealIp
    );
}

#[test]
fn fields_are_found_by_name_in_their_order() {
    let bytes = with_field("Cookie: a=b\r\nA: x\r\ncookie: c=d");
    let head = complete_request(&bytes);
    assert_eq!(head.get(&bytes, KnownName::Cookie), Some(&b"a=b"[..]));
    assert!(head.get_all(&bytes, KnownName::Cookie).eq([b"a=b", b"c=d"]));
    assert!(head.has(KnownName::Cookie) && !head.has(KnownName::Accept));
    assert_eq!(head.get(&bytes, KnownName::Accept), None);
    assert_eq!(
        cookie::find(head.get_all(&bytes, KnownName::Cookie), b"c"),
        Some(&b"d"[..])
    );
}
