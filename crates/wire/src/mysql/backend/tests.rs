//! Packets that a server sends, captured from MariaDB 10.11 and MySQL 9.

use super::*;

const TRACK: Capabilities = Capabilities::SESSION_TRACK;

#[test]
fn oks_of_both_servers_are_read() {
    let ok = OkPacket::read(b"\0\0\0\x02\0\0\0", TRACK).unwrap();
    assert_eq!((ok.status, ok.info), (Status::AUTOCOMMIT, &b""[..]));
    let ok = OkPacket::read(b"\0\0\0\x02\x40\0\0\0\x09\x01\x07\x06sbtest", TRACK).unwrap();
    assert_eq!(ok.session_state, b"\x01\x07\x06sbtest");
    let info = b"\0\x0e\0\x02\0\0\0'Records: 14  Duplicates: 0  Warnings: 0";
    let ok = OkPacket::read(info, TRACK).unwrap();
    assert_eq!((ok.affected_rows, ok.info.len()), (14, 39));
}

#[test]
fn an_ok_without_trackers_has_its_words_behind_their_length_too() {
    let ok = OkPacket::read(b"\0\x01\0\x02\0\0\0\x04Rows", Capabilities::default()).unwrap();
    assert_eq!(ok.info, b"Rows");
}

#[test]
fn an_ok_whose_trackers_are_cut_is_refused() {
    let whole = b"\0\0\0\x02\x40\0\0\0\x09\x01\x07\x06sbtest";
    for cut in 8..whole.len() {
        assert!(OkPacket::read(&whole[..cut], TRACK).is_err(), "{cut}");
    }
}

#[test]
fn errors_say_whether_another_server_can_help() {
    let report = |bytes: &'static [u8]| ErrorReport::read(bytes).unwrap();
    let read_only = b"\xff\x0a\x05#HY000The MariaDB server is running with the --read-only option \
        so it cannot execute this statement";
    assert!(report(read_only).is_read_only());
    let other =
        b"\xff\x0a\x05#HY000The MySQL server is running with the --secure-file-priv option \
        so it cannot execute this statement";
    assert!(!report(other).is_read_only());
    assert!(report(b"\xff\x1d\x04#08S01Server shutdown in progress").is_fatal());
    assert!(report(b"\xff\x10\x04#08004Too many connections").is_full());
    let alone = b"\xff\x17\x04#08S01WSREP has not yet prepared node for application use";
    assert!(report(alone).is_without_cluster());
    assert!(!report(b"\xff\x17\x04#08S01Unknown command").is_without_cluster());
}

#[test]
fn steps_of_a_login_are_read() {
    let switch = b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0";
    let Ok(Login::Switch { plugin, data }) = login(switch, TRACK) else {
        panic!("no switch");
    };
    assert_eq!(plugin, b"caching_sha2_password");
    assert_eq!(data, b"abcdefghijklmnopqrst\0");
    assert_eq!(login(b"\x01\x03", TRACK), Ok(Login::More(b"\x03")));
    assert_eq!(login(b"P\0salt", TRACK), Ok(Login::More(b"P\0salt")));
    assert_eq!(login(b"\xfe", TRACK), Err(ProtocolError::TooOld));
    assert_eq!(
        login(b"", TRACK),
        Err(ProtocolError::Malformed(PacketKind::Login))
    );
}
