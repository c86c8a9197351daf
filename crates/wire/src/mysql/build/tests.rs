//! Encoded packets are parsed with the same fields; truncated ones are rejected.

use super::*;
use crate::mysql::backend::{self, ErrorReport, Login, OkPacket, PrepareOk, SqlState};
use crate::mysql::flags::{Capabilities, Status};
use crate::mysql::frame::{Frame, PAYLOAD_LENGTH_MAX, frame};
use crate::mysql::frontend::{self, Execute, Request};
use crate::mysql::startup::{self, Attributes};
use crate::mysql::{Parsed, StatementId, greeting};

const NONE: Capabilities = Capabilities(0);

fn payload(bytes: &[u8]) -> &[u8] {
    match frame(bytes, PAYLOAD_LENGTH_MAX) {
        Parsed::Frame(Frame { payload, .. }, length) if length == bytes.len() => payload,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_greeting_is_read_as_written() {
    for capabilities in [
        Capabilities::SPOKEN.without(Capabilities::LONG_PASSWORD),
        Capabilities(Capabilities::SPOKEN.0 & 0xffff_ffff),
    ] {
        let mut out = Vec::new();
        greeting(
            &mut out,
            &GreetingFields {
                version: b"8.4.3-evenkeel",
                connection: 77,
                capabilities,
                collation: 45,
                status: Status::AUTOCOMMIT,
                nonce: b"abcdefghijklmnopqrst",
                plugin: b"caching_sha2_password",
            },
        );
        let bytes = payload(&out);
        let Ok(greeting::First::Greeting(read)) = greeting::first(bytes) else {
            panic!("{bytes:?}");
        };
        assert_eq!(read.capabilities, capabilities);
        assert_eq!(read.nonce.whole(), Some(*b"abcdefghijklmnopqrst"));
        assert_eq!(
            (read.version, read.connection),
            (&b"8.4.3-evenkeel"[..], 77)
        );
        assert_eq!(read.plugin, b"caching_sha2_password");
        for cut in 0..bytes.len() - 23 {
            assert!(greeting::first(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}

fn fields<'a>(capabilities: Capabilities, attributes: &'a [u8]) -> ResponseFields<'a> {
    ResponseFields {
        capabilities,
        collation: 45,
        user: b"anna",
        proof: &[7; 20],
        schema: b"shop",
        plugin: b"mysql_native_password",
        attributes: Attributes(attributes),
        zstd_level: 3,
    }
}

#[test]
fn a_response_is_read_as_written_and_cut_it_is_refused() {
    let all = Capabilities::SPOKEN.with(Capabilities::ZSTD);
    let maria = all.without(Capabilities::LONG_PASSWORD);
    let plain = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
    for capabilities in [Capabilities(all.0 & 0xffff_ffff), maria, plain] {
        let mut out = Vec::new();
        response(&mut out, 1, &fields(capabilities, b"\x04_pid\x0212"));
        let bytes = payload(&out);
        let Ok(startup::First::Response(read)) = startup::first(bytes) else {
            panic!("{:?}", startup::first(bytes));
        };
        let has = |capability| capabilities.has(capability);
        assert_eq!(read.capabilities, capabilities);
        assert_eq!((read.user, read.proof), (&b"anna"[..], &[7; 20][..]));
        assert_eq!(read.schema.is_some(), has(Capabilities::CONNECT_WITH_DB));
        assert_eq!(read.plugin.is_some(), has(Capabilities::PLUGIN_AUTH));
        assert_eq!(read.zstd_level.is_some(), has(Capabilities::ZSTD));
        if has(Capabilities::CONNECT_ATTRS) {
            let pairs: Vec<_> = read.attributes.pairs().collect();
            assert_eq!(pairs, [(&b"_pid"[..], &b"12"[..])]);
        }
        for cut in 0..32 + 5 + 21 {
            let read = startup::first(&bytes[..cut]);
            assert!(!matches!(read, Ok(startup::First::Response(_))), "{cut}");
        }
    }
}

#[test]
fn a_wish_for_tls_is_read_as_written() {
    let mut out = Vec::new();
    ssl_request(&mut out, 1, Capabilities::SPOKEN, 45);
    let Ok(startup::First::SslRequest(read)) = startup::first(payload(&out)) else {
        panic!("{out:?}");
    };
    assert!(read.capabilities.has(Capabilities::SSL));
    assert_eq!(payload(&out).len(), startup::SSL_REQUEST_LENGTH);
}

#[test]
fn commands_are_read_as_written() {
    type Write = Box<dyn Fn(&mut Vec<u8>)>;
    let statement = StatementId(0x0102_0304);
    let cases: Vec<(Write, Request<'_>)> = vec![
        (
            Box::new(|out| query(out, b"SELECT 1")),
            Request::Query {
                attributes: b"",
                text: b"SELECT 1",
            },
        ),
        (
            Box::new(|out| prepare(out, b"DO 1")),
            Request::Prepare { text: b"DO 1" },
        ),
        (
            Box::new(move |out| execute(out, statement, 1, b"\x01\0\0\0")),
            Request::Execute(Execute {
                statement,
                flags: 1,
                values: b"\x01\0\0\0",
            }),
        ),
        (
            Box::new(move |out| long_data(out, statement, 2, b"abc")),
            Request::LongData {
                statement,
                parameter: 2,
                data: b"abc",
            },
        ),
        (
            Box::new(move |out| fetch(out, statement, 9)),
            Request::Fetch {
                statement,
                rows_max: 9,
            },
        ),
        (
            Box::new(move |out| close(out, statement)),
            Request::Close(statement),
        ),
        (Box::new(|out| init_db(out, b"a")), Request::InitDb(b"a")),
        (
            Box::new(|out| set_option(out, true)),
            Request::SetOption {
                multi_statements: true,
            },
        ),
    ];
    for (write, expect) in cases {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(frontend::request(payload(&out), NONE), Ok(expect));
    }
}

#[test]
fn replies_are_read_as_written() {
    let track = Capabilities::SESSION_TRACK;
    for (agreed, session_state) in [(NONE, &b""[..]), (track, b"\x01\x02\x01a"), (track, b"")] {
        let status = match session_state {
            [] => Status::AUTOCOMMIT,
            _ => Status::AUTOCOMMIT.with(Status::SESSION_STATE_CHANGED),
        };
        let written = OkPacket {
            affected_rows: 300,
            last_insert_id: 70_000,
            status,
            warnings: 2,
            info: b"Rows matched: 1",
            session_state,
            is_cut: false,
        };
        let mut out = Vec::new();
        ok(&mut out, 1, &written, agreed);
        assert_eq!(OkPacket::read(payload(&out), agreed), Ok(written));
        for cut in 0..11 {
            assert!(OkPacket::read(&payload(&out)[..cut], agreed).is_err());
        }
    }
    let mut out = Vec::new();
    let (code, sqlstate, message) = (1045, SqlState::ACCESS, &b"no"[..]);
    error(
        &mut out,
        1,
        &ErrorText {
            code,
            sqlstate,
            message,
        },
    );
    let sqlstate = Some(sqlstate);
    let report = ErrorReport {
        code,
        sqlstate,
        message,
        is_unasked: false,
    };
    assert_eq!(
        backend::login(payload(&out), NONE),
        Ok(Login::Error(report))
    );
}

#[test]
fn the_answer_to_prepare_is_read_as_written() {
    let written = PrepareOk {
        statement: StatementId(5),
        columns: 2,
        parameters: 3,
        warnings: 1,
    };
    let mut out = Vec::new();
    prepare_ok(&mut out, 1, &written);
    assert_eq!(PrepareOk::read(payload(&out)), Ok(written));
}

#[test]
fn an_error_before_the_handshake_has_no_sqlstate() {
    let report = greeting::first(b"\xff\x10\x04Too many connections");
    let Ok(greeting::First::Error(report)) = report else {
        panic!("{report:?}");
    };
    assert!(report.is_full() && report.sqlstate.is_none());
}

#[test]
fn lengths_have_the_forms_that_the_protocol_names() {
    for (value, expect) in [
        (250, &b"\xfa"[..]),
        (251, b"\xfc\xfb\0"),
        (0xffff, b"\xfc\xff\xff"),
        (0x1_0000, b"\xfd\0\0\x01"),
        (0x100_0000, b"\xfe\0\0\0\x01\0\0\0\0"),
    ] {
        let mut out = Vec::new();
        put_lenenc(&mut out, value);
        assert_eq!(out, expect);
        let mut body = crate::mysql::cursor::Cursor(&out);
        assert_eq!(body.lenenc(), Some(value));
    }
}
