//! Client side: opening streams, and the end of them that the server decides.

use super::*;

/// First bytes of a server: SETTINGS without settings, and the acknowledgement of the client's.
const SERVER_HELLO: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

impl Side {
    pub(super) fn client_with(limits: Limits) -> Self {
        let mut client = Side::of(Connection::client(limits));
        let preface: Vec<_> = client.out.drain(..PREFACE.len()).collect();
        assert_eq!(preface, PREFACE);
        client
    }

    /// Returns a client that has read the first frames of a server.
    pub(super) fn client() -> Self {
        let mut client = Side::client_with(Limits::default());
        client.accepts(SERVER_HELLO);
        client.out.clear();
        client
    }

    /// Opens a stream with a request.
    pub(super) fn open(&mut self, method: Method, end: bool) -> Option<u32> {
        let write = |_: &mut Encoder, out: &mut Vec<u8>| {
            // Index 2 of the static table: `:method: GET`.
            out.push(0x82);
            end
        };
        let opened = self.connection.open(method, &mut self.out, write);
        opened.map(StreamId::get)
    }
}

/// Returns the head of a response with status 200.
pub(super) fn ok(stream: u32, flags: u8) -> Vec<u8> {
    head(stream, flags, "200", &[])
}

/// Returns the head of a response.
pub(super) fn head(stream: u32, flags: u8, status: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let all = [&[(":status", status)], fields].concat();
    frame(HEADERS, flags | END_HEADERS, stream, &block(&all))
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &payload)
}

/// RFC 9113 §3.4: the preface, then SETTINGS. §6.5.2: no push.
#[test]
fn a_client_begins_with_the_preface_and_settings() {
    let mut client = Side::client_with(Limits::default());
    let sent = client.sent();
    assert_eq!((sent[0].kind, sent[0].flags), (SETTINGS, 0));
    let settings = sent[0].payload.chunks(6).map(<[u8]>::to_vec);
    assert_eq!(settings.clone().next(), Some(vec![0, 2, 0, 0, 0, 0]));
    assert!(!settings.clone().any(|it| it[1] == 3), "no concurrency");
    assert_eq!((sent[1].kind, sent[1].stream), (WINDOW_UPDATE, 0));
}

/// RFC 9113 §5.1.1: odd numbers that rise.
#[test]
fn each_request_has_the_next_odd_stream() {
    let mut client = Side::client();
    let opened: Vec<_> = (0..3).map(|_| client.open(Method::Get, true)).collect();
    assert_eq!(opened, [Some(1), Some(3), Some(5)]);
    let sent = client.sent();
    let heads = sent.iter().map(|it| (it.kind, it.flags, it.stream));
    let heads: Vec<_> = heads.collect();
    let flags = END_STREAM | END_HEADERS;
    assert_eq!(heads, [1, 3, 5].map(|stream| (HEADERS, flags, stream)));
    assert_eq!(client.connection.open_streams(), 3);
}

/// A request may be sent before the server's SETTINGS have arrived (RFC 9113 §3.4).
#[test]
fn a_request_does_not_wait_for_settings() {
    let mut client = Side::client_with(Limits::default());
    assert_eq!(client.open(Method::Get, true), Some(1));
    client.accepts(SERVER_HELLO);
    client.accepts(&ok(1, END_STREAM));
    assert_eq!(client.seen(), [Seen::Response(1, true)]);
}

#[test]
fn the_first_frame_of_a_server_is_settings() {
    let code = ErrorCode::ProtocolError;
    let hello = frame(SETTINGS, ACK, 0, &[]);
    Side::client_with(Limits::default()).refuses(&hello, code);
    Side::client_with(Limits::default()).refuses(&frame(PING, 0, 0, &[0; 8]), code);
    let mut client = Side::client_with(Limits::default());
    client.refuses(b"HTTP/1.1 400 Bad Request\r\n\r\n", code);
    let error = client.connection.failed().expect("an error");
    assert_eq!(error.why, "the server answers in HTTP/1.1");
}

/// RFC 9113 §5.1.2: no more streams than SETTINGS_MAX_CONCURRENT_STREAMS, also after a decrease.
#[test]
fn the_server_limits_the_number_of_streams() {
    let mut client = Side::client();
    assert_eq!(client.connection.free_streams(), 100);
    client.accepts(&settings(&[(3, 2)]));
    assert_eq!(client.open(Method::Get, true), Some(1));
    assert_eq!(client.connection.free_streams(), 1);
    assert_eq!(client.open(Method::Get, true), Some(3));
    client.out.clear();
    assert_eq!(client.open(Method::Get, true), None);
    assert_eq!(client.out, [], "nothing is written");
    client.accepts(&settings(&[(3, 1)]));
    assert_eq!(client.connection.free_streams(), 0);
    client.accepts(&ok(1, END_STREAM));
    client.finish(1);
    assert_eq!(client.open(Method::Get, true), None);
    client.accepts(&ok(3, END_STREAM));
    client.finish(3);
    assert_eq!(client.open(Method::Get, true), Some(5));
}

#[test]
fn our_own_limit_of_streams_holds() {
    let limits = Limits {
        streams_max: 1,
        ..Limits::default()
    };
    let mut client = Side::client_with(limits);
    assert_eq!(client.open(Method::Get, true), Some(1));
    assert_eq!(client.open(Method::Get, true), None);
    client.accepts(SERVER_HELLO);
    client.accepts(&ok(1, END_STREAM));
    assert_eq!(client.open(Method::Get, true), None, "not finished");
    client.finish(1);
    assert_eq!(client.open(Method::Get, true), Some(3));
}

/// RFC 9113 §5.1.1: "Stream identifiers cannot be reused."
#[test]
fn no_stream_follows_the_last_number() {
    let mut client = Side::client();
    client.connection.streams.open(id(0x7fff_fffd));
    assert_eq!(client.open(Method::Get, true), Some(0x7fff_ffff));
    assert_eq!(client.connection.free_streams(), 0);
    assert_eq!(client.open(Method::Get, true), None);
}

#[test]
fn a_server_opens_no_streams() {
    let mut server = Side::server();
    assert_eq!(server.connection.free_streams(), 0);
    assert_eq!(server.open(Method::Get, true), None);
}

/// RFC 9113 §6.8, §8.7.
#[test]
fn streams_above_the_last_one_of_goaway_are_unprocessed() {
    let mut client = Side::client();
    for _ in 0..4 {
        client.open(Method::Post, true);
    }
    // A response has begun, whatever GOAWAY says.
    client.accepts(&ok(7, 0));
    client.accepts(&[go_away(1, 0), ok(1, END_STREAM)].concat());
    let expect = [
        Seen::Response(7, false),
        Seen::GoAway(ErrorCode::NoError),
        Seen::Unprocessed(3),
        Seen::Unprocessed(5),
        Seen::Response(1, true),
    ];
    assert_eq!(client.seen(), expect);
    assert_eq!(client.connection.free_streams(), 0);
    assert_eq!(client.open(Method::Get, true), None);
    assert!(!client.connection.may_send(id(3)));
    for stream in [1, 3, 5] {
        client.finish(stream);
    }
    assert!(!client.connection.is_drained());
    client.accepts(&last_data(7, b"x"));
    client.finish(7);
    assert!(client.connection.is_drained());
    assert_eq!(client.connection.failed(), None);
}

/// RFC 9113 §6.8: the first GOAWAY of a graceful end has the number 2^31-1.
#[test]
fn a_second_goaway_excludes_more_streams() {
    let mut client = Side::client();
    client.open(Method::Get, true);
    client.open(Method::Get, true);
    client.accepts(&go_away(0x7fff_ffff, 0));
    assert_eq!(client.seen(), [Seen::GoAway(ErrorCode::NoError)]);
    client.accepts(&go_away(1, 0));
    let expect = [Seen::GoAway(ErrorCode::NoError), Seen::Unprocessed(3)];
    assert_eq!(client.seen(), expect);
    client.finish(3);
    client.accepts(&[go_away(0x7fff_ffff, 0), ok(1, END_STREAM)].concat());
    let expect = [Seen::GoAway(ErrorCode::NoError), Seen::Response(1, true)];
    assert_eq!(client.seen(), expect);
}

/// RFC 9113 §8.7: "The REFUSED_STREAM error code".
#[test]
fn a_refused_stream_is_unprocessed() {
    let mut client = Side::client();
    client.open(Method::Post, false);
    client.open(Method::Post, false);
    client.accepts(&[reset(1, 7), ok(3, 0), reset(3, 7)].concat());
    let expect = [
        Seen::Unprocessed(1),
        Seen::Response(3, false),
        Seen::Reset(3, ErrorCode::RefusedStream),
    ];
    assert_eq!(client.seen(), expect);
    assert_eq!(client.send(1, b"x", true), 0);
    assert_eq!(client.connection.open_streams(), 2);
}

#[test]
fn a_reset_of_the_server_ends_the_stream() {
    let mut client = Side::client();
    client.open(Method::Post, false);
    client.accepts(&[ok(1, END_STREAM), reset(1, 0)].concat());
    let expect = [Seen::Response(1, true), Seen::Reset(1, ErrorCode::NoError)];
    assert_eq!(client.seen(), expect);
    client.out.clear();
    client.finish(1);
    assert_eq!(client.sent(), []);
    // The stream was ours, and may be named.
    client.accepts(&[reset(1, 0), window_update(1, 1)].concat());
    client.refuses(&reset(3, 0), ErrorCode::ProtocolError);
}

/// Resets that the caller wants, such as those of clients that no longer wait, are not the
/// server's fault; and a server cannot reset more streams than we open.
#[test]
fn resets_of_requests_end_no_connection() {
    let mut client = Side::client();
    for number in 0..1_000 {
        let stream = 2 * number + 1;
        client.open(Method::Get, true);
        match number % 2 {
            0 => client.accepts(&reset(stream, 2)),
            _ => client
                .connection
                .reset(id(stream), ErrorCode::Cancel, &mut client.out),
        }
        client.finish(stream);
    }
    assert_eq!(client.connection.failed(), None);
}

#[test]
fn an_exchange_that_ends_early_is_cancelled() {
    for (send, receive) in [(false, false), (true, false), (false, true)] {
        let mut client = Side::client();
        client.open(Method::Post, send);
        client.accepts(&ok(1, if receive { END_STREAM } else { 0 }));
        client.out.clear();
        client.finish(1);
        let sent = client.sent();
        assert_eq!((sent.len(), sent[0].kind), (1, RST_STREAM));
        assert_eq!(sent[0].payload, ErrorCode::Cancel.code().to_be_bytes());
        // Frames that the server sent before it knew.
        let late = match receive {
            true => window_update(1, 5),
            false => [data(1, b"late"), head(1, END_STREAM, "200", &[])].concat(),
        };
        client.accepts(&late);
        assert_eq!(client.connection.open_streams(), 0);
    }
}

/// RFC 9113 §5.1: a stream that both sides have ended is closed.
#[test]
fn frames_after_the_end_of_a_response_are_refused() {
    let mut client = Side::client();
    client.open(Method::Post, false);
    client.accepts(&ok(1, END_STREAM));
    client.accepts(&last_data(1, b"x"));
    client.assert_reset(1, ErrorCode::StreamClosed);
    let mut client = Side::client();
    client.open(Method::Get, true);
    client.accepts(&ok(1, END_STREAM));
    client.finish(1);
    client.refuses(&last_data(1, b"x"), ErrorCode::StreamClosed);
}

/// RFC 9113 §6.6, §8.4: a client that has set ENABLE_PUSH to 0 is promised nothing.
#[test]
fn a_promise_is_refused() {
    let mut client = Side::client();
    client.open(Method::Get, true);
    let promise = frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]);
    client.refuses(&promise, ErrorCode::ProtocolError);
}

#[test]
fn streams_that_the_client_has_not_opened_are_refused() {
    let code = ErrorCode::ProtocolError;
    for stream in [2, 3] {
        for bytes in [
            ok(stream, END_STREAM),
            data(stream, b"x"),
            reset(stream, 8),
            window_update(stream, 1),
        ] {
            let mut client = Side::client();
            client.open(Method::Get, true);
            client.refuses(&bytes, code);
        }
    }
}

/// RFC 9113 §6.5.2: "A server MUST NOT explicitly set this value to 1".
#[test]
fn a_server_does_not_enable_push() {
    Side::client().accepts(&settings(&[(2, 0)]));
    Side::client().refuses(&settings(&[(2, 1)]), ErrorCode::ProtocolError);
    Side::server().accepts(&settings(&[(2, 1)]));
}

#[test]
fn a_client_closes_with_one_goaway() {
    let mut client = Side::client();
    client.open(Method::Get, true);
    client.out.clear();
    client.connection.close_gracefully(&mut client.out);
    client.connection.close_gracefully(&mut client.out);
    let sent = client.sent();
    assert_eq!((sent.len(), sent[0].kind), (1, GOAWAY));
    assert_eq!(sent[0].payload, [0; 8]);
    assert_eq!(client.open(Method::Get, true), None);
    assert!(!client.connection.is_drained());
    client.accepts(&[ok(1, 0), last_data(1, b"x")].concat());
    let expect = [
        Seen::Response(1, false),
        Seen::Data(1, b"x".to_vec()),
        Seen::End(1),
    ];
    assert_eq!(client.seen(), expect);
    client.finish(1);
    assert!(client.connection.is_drained());
}

#[test]
fn the_goaway_of_a_failed_client_names_no_stream_of_its_own() {
    let mut client = Side::client();
    client.open(Method::Get, true);
    client.out.clear();
    assert!(client.receive(&data(0, b"x")).is_err());
    let sent = client.sent();
    assert_eq!((sent.len(), sent[0].kind), (1, GOAWAY));
    assert_eq!(sent[0].payload[..4], [0; 4]);
}
