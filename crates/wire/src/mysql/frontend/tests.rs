//! Commands, query attributes, parameters.

use super::*;

const ATTRIBUTES: Capabilities = Capabilities::QUERY_ATTRIBUTES;

/// Two attributes: `n` = 5 (LONG), `s` = "abc" (VAR_STRING), and a third that is NULL.
const GIVEN: &[u8] = b"\x03\x01\x04\x01\x03\0\x01n\xfd\0\x01s\xfd\0\x01z\x05\0\0\0\x03abc";

#[test]
fn query_attributes_are_taken_off_the_text() {
    let mut payload = b"\x03".to_vec();
    payload.extend_from_slice(GIVEN);
    payload.extend_from_slice(b"SELECT 1");
    let expect = Request::Query {
        attributes: GIVEN,
        text: b"SELECT 1",
    };
    assert_eq!(request(&payload, ATTRIBUTES), Ok(expect));
    let expect = Request::Query {
        attributes: b"\0\x01",
        text: b"DO 1",
    };
    assert_eq!(request(b"\x03\0\x01DO 1", ATTRIBUTES), Ok(expect));
    for cut in 1..=GIVEN.len() - 1 {
        assert!(request(&payload[..cut], ATTRIBUTES).is_err(), "{cut}");
    }
}

#[test]
fn parameters_are_taken_apart_with_and_without_names() {
    let plain = Execute {
        statement: StatementId(1),
        flags: 0,
        values: b"\x01\0\0\0\0\x01\x03\0\xfd\0\x05\0\0\0\x01x",
    };
    let found = parameters(&plain, 2, Capabilities::default()).unwrap();
    assert_eq!((found.count, found.nulls), (2, &b"\0"[..]));
    assert_eq!(found.values_of_first(1), Some(&b"\x05\0\0\0"[..]));
    assert_eq!(found.types_of_first(1), Some(&b"\x03\0"[..]));
    let named = Execute {
        flags: Execute::COUNT_AVAILABLE,
        values: b"\x01\0\0\0\x02\0\x01\x03\0\0\xfd\0\x01a\x05\0\0\0\x01x",
        ..plain
    };
    let found = parameters(&named, 1, ATTRIBUTES).unwrap();
    let types: Vec<_> = found.typed().collect();
    assert_eq!(types, [(3, &b""[..]), (0xfd, &b"a"[..])]);
    assert_eq!(found.values_of_first(2), Some(&b"\x05\0\0\0\x01x"[..]));
    assert_eq!(found.types_of_first(0), Some(&b""[..]));
    assert_eq!(found.types_of_first(1), Some(&b"\x03\0\0"[..]));
    assert_eq!(found.types_of_first(2), found.types);
    assert_eq!(found.types_of_first(3), None);
}

#[test]
fn a_change_of_user_is_read() {
    let agreed = Capabilities::SPOKEN;
    let payload = b"\x11anna\0\x02pq shop\0\x2d\0mysql_native_password\0\0";
    let Ok(Request::ChangeUser(found)) = request(payload, agreed) else {
        panic!("{:?}", request(payload, agreed));
    };
    assert_eq!((found.user, found.proof), (&b"anna"[..], &b"pq"[..]));
    assert_eq!((found.schema, found.collation), (&b" shop"[..], Some(45)));
    assert_eq!(found.plugin, Some(&b"mysql_native_password"[..]));
}

#[test]
fn every_code_is_read_as_its_byte() {
    for byte in 0..=u8::MAX {
        match Code::of(byte) {
            Some(code) => assert_eq!(code as u8, byte),
            None => assert_eq!(
                request(&[byte], ATTRIBUTES),
                Err(ProtocolError::UnknownCommand(byte))
            ),
        }
    }
    assert_eq!(
        request(b"", ATTRIBUTES),
        Err(ProtocolError::Malformed(PacketKind::Empty))
    );
    let short = request(b"\x17\0\0", ATTRIBUTES);
    assert_eq!(
        short,
        Err(ProtocolError::Malformed(PacketKind::Command(0x17)))
    );
}
