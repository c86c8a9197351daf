//! Heads, bodies and trailers of responses (RFC 9113 §8.1, §8.3.2).

use super::client::{head, ok};
use super::*;

/// Returns a client that has sent a request.
fn asking(method: Method) -> Side {
    let mut client = Side::client();
    client.open(method, true);
    client.out.clear();
    client
}

#[track_caller]
fn is_malformed(bytes: &[u8]) {
    let mut client = asking(Method::Get);
    client.accepts(bytes);
    client.assert_reset(1, ErrorCode::ProtocolError);
}

/// Returns the text of a head.
#[track_caller]
fn text(method: Method, flags: u8, status: &str, fields: &[(&str, &str)]) -> String {
    let mut client = asking(method);
    client.accepts(&head(1, flags, status, fields));
    let expect = [Seen::Response(1, flags & END_STREAM != 0)];
    assert_eq!(client.seen(), expect);
    String::from_utf8(client.connection.head_text().to_vec()).expect("UTF-8")
}

#[test]
fn a_head_becomes_text_of_http_1_1() {
    let fields = [("server", "x"), ("set-cookie", "a"), ("set-cookie", "b")];
    let expect = "HTTP/1.1 200 \r\nserver: x\r\nset-cookie: a\r\nset-cookie: b\r\n\
        transfer-encoding: chunked\r\n\r\n";
    assert_eq!(text(Method::Get, 0, "200", &fields), expect);
    let length = [("content-length", "5")];
    let expect = "HTTP/1.1 404 \r\ncontent-length: 5\r\n\r\n";
    assert_eq!(text(Method::Get, 0, "404", &length), expect);
}

/// The framing of the text is that of the response: HTTP/1.1 must not take it for a body that
/// lasts until the connection closes.
#[test]
fn the_text_states_the_framing() {
    let empty = "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n";
    let none = "HTTP/1.1 200 \r\n\r\n";
    let zero = [("content-length", "0")];
    assert_eq!(text(Method::Get, END_STREAM, "200", &[]), empty);
    assert_eq!(text(Method::Get, END_STREAM, "200", &zero), empty);
    assert_eq!(text(Method::Head, END_STREAM, "200", &[]), none);
    assert_eq!(text(Method::Head, 0, "200", &zero), empty);
    let seven = [("content-length", "7")];
    let expect = "HTTP/1.1 200 \r\ncontent-length: 7\r\n\r\n";
    assert_eq!(text(Method::Head, END_STREAM, "200", &seven), expect);
    let expect = "HTTP/1.1 304 \r\ncontent-length: 7\r\n\r\n";
    assert_eq!(text(Method::Get, END_STREAM, "304", &seven), expect);
    let expect = "HTTP/1.1 204 \r\n\r\n";
    assert_eq!(text(Method::Get, END_STREAM, "204", &[]), expect);
    let chunked = "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(text(Method::Get, 0, "200", &zero), chunked);
}

#[test]
fn the_text_is_a_head_of_http_1_1() {
    let mut client = asking(Method::Get);
    client.accepts(&head(1, 0, "200", &[("x-a", "")]));
    let text = client.connection.head_text();
    let mut head = ResponseHead::new();
    let parsed = head.parse(text, &HeadLimits::default(), Method::Get);
    assert_eq!(parsed, Parsed::Complete);
    assert_eq!((head.status(), head.framing()), (200, Framing::Chunked));
}

/// RFC 9113 §8.3.2: `:status`, once, and no other pseudo-field.
#[test]
fn the_only_pseudo_field_is_the_status() {
    for fields in [
        &[][..],
        &[("server", "x")],
        &[("server", "x"), (":status", "200")],
        &[(":status", "200"), (":status", "200")],
        &[(":status", "200"), (":path", "/")],
        &[(":path", "/"), (":status", "200")],
        &[(":status", "20")],
        &[(":status", "2000")],
        &[(":status", "099")],
        &[(":status", "+20")],
        &[(":status", "")],
        // RFC 9113 §8.6.
        &[(":status", "101")],
    ] {
        is_malformed(&frame(HEADERS, END_HEADERS, 1, &block(fields)));
    }
}

/// RFC 9113 §8.2.
#[test]
fn a_field_that_breaks_the_grammar_is_malformed() {
    for field in [
        ("connection", "close"),
        ("keep-alive", "5"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "x"),
        ("te", "gzip"),
        ("Server", "x"),
        ("a b", "x"),
        ("", "x"),
        ("x", " y"),
        ("x", "y\r\nz: 1"),
        ("x", "y\0"),
        ("content-length", "x"),
        ("content-length", "-1"),
    ] {
        is_malformed(&head(1, 0, "200", &[field]));
    }
    let twice = [("content-length", "1"), ("content-length", "1")];
    is_malformed(&head(1, 0, "200", &twice));
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let mut client = asking(Method::Get);
    let interim = [
        head(1, 0, "100", &[]),
        head(1, 0, "103", &[("link", "</x>")]),
        head(1, 0, "150", &[("content-length", "5")]),
        ok(1, END_STREAM),
    ];
    client.accepts(&interim.concat());
    let expect = [false, false, false, true].map(|end| Seen::Response(1, end));
    assert_eq!(client.seen(), expect);
}

/// RFC 9113 §8.1.
#[test]
fn an_interim_response_does_not_end_the_stream() {
    is_malformed(&head(1, END_STREAM, "103", &[]));
}

#[test]
fn data_before_the_final_head_is_malformed() {
    is_malformed(&data(1, b"x"));
    let mut client = asking(Method::Get);
    client.accepts(&[head(1, 0, "100", &[]), last_data(1, b"")].concat());
    client.assert_reset(1, ErrorCode::ProtocolError);
}

/// RFC 9113 §8.1.1.
#[test]
fn data_agree_with_content_length() {
    let five = |flags| head(1, flags, "200", &[("content-length", "5")]);
    let mut client = asking(Method::Get);
    client.accepts(&[five(0), data(1, b"abc"), last_data(1, b"de")].concat());
    let expect = [
        Seen::Response(1, false),
        Seen::Data(1, b"abcde".to_vec()),
        Seen::End(1),
    ];
    assert_eq!(client.seen(), expect);
    is_malformed(&five(END_STREAM));
    for bytes in [
        last_data(1, b"abcd"),
        data(1, b"abcdef"),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&[("x", "y")])),
    ] {
        let mut client = asking(Method::Get);
        client.accepts(&five(0));
        client.seen();
        client.accepts(&bytes);
        client.assert_reset(1, ErrorCode::ProtocolError);
    }
}

/// RFC 9113 §8.1.1, RFC 9110 §6.4.1: no content after HEAD, 204 and 304, whatever Content-Length.
#[test]
fn responses_without_content_have_no_data() {
    let cases = [
        (Method::Head, "200"),
        (Method::Get, "204"),
        (Method::Get, "304"),
    ];
    for (method, status) in cases {
        let head = head(1, 0, status, &[("content-length", "5")]);
        let mut client = asking(method);
        client.accepts(&[&head[..], &last_data(1, b"")].concat());
        assert_eq!(client.seen().last(), Some(&Seen::End(1)));
        let mut client = asking(method);
        client.accepts(&[&head[..], &last_data(1, b"abcde")].concat());
        client.assert_reset(1, ErrorCode::ProtocolError);
    }
}

#[test]
fn trailers_end_a_response() {
    let fields = block(&[("grpc-status", "0"), ("my_key", "1"), ("content-type", "x")]);
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields);
    let mut client = asking(Method::Post);
    client.accepts(&[ok(1, 0), data(1, b"x"), trailers].concat());
    assert_eq!(client.seen().last(), Some(&Seen::Trailers(1)));
    let fields = client.connection.trailers().fields();
    let names: Vec<_> = fields.map(|field| field.name).collect();
    assert_eq!(names, [&b"grpc-status"[..], b"my_key"]);
}

/// RFC 9113 §8.1.
#[test]
fn trailers_that_do_not_end_the_stream_are_malformed() {
    for (flags, field) in [(0, ("x", "y")), (END_STREAM, (":status", "200"))] {
        let trailers = frame(HEADERS, flags | END_HEADERS, 1, &block(&[field]));
        let mut client = asking(Method::Get);
        client.accepts(&[ok(1, 0), trailers].concat());
        client.assert_reset(1, ErrorCode::ProtocolError);
    }
}

#[test]
fn a_head_over_the_limits_cancels_the_stream() {
    let limits = Limits {
        fields_max: 2,
        ..Limits::default()
    };
    let mut client = Side::client_with(limits);
    client.accepts(HELLO_OF_SERVER);
    client.open(Method::Get, true);
    client.accepts(&head(
        1,
        END_STREAM,
        "200",
        &[("a", ""), ("b", ""), ("c", "")],
    ));
    client.assert_reset(1, ErrorCode::Cancel);
    client.open(Method::Get, true);
    client.accepts(&head(3, 0, "200", &[("a", ""), ("content-length", "1")]));
    assert_eq!(client.seen(), [Seen::Response(3, false)]);
}

const HELLO_OF_SERVER: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// The table follows the head of a stream that was cancelled (RFC 9113 §4.3).
#[test]
fn the_table_follows_discarded_heads() {
    let mut client = Side::client();
    client.open(Method::Get, true);
    client.open(Method::Get, true);
    client.finish(1);
    // `:status: 200`, then `x: y` with incremental indexing, which becomes index 62.
    let first = [0x88, 0x40, 1, b'x', 1, b'y'];
    client.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &first));
    client.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &[0x88, 0xbe]));
    assert_eq!(client.seen(), [Seen::Response(3, true)]);
    let text = client.connection.head_text();
    assert_eq!(text, b"HTTP/1.1 200 \r\nx: y\r\ncontent-length: 0\r\n\r\n");
}

/// RFC 9113 §6.9: windows of a response open as the caller releases.
#[test]
fn the_window_of_a_response_holds() {
    let limits = Limits {
        stream_window: 65_535,
        connection_window: 200_000,
        ..Limits::default()
    };
    let mut client = Side::client_with(limits);
    client.releases = false;
    client.accepts(HELLO_OF_SERVER);
    client.open(Method::Get, true);
    client.out.clear();
    client.accepts(&ok(1, 0));
    for _ in 0..4 {
        client.accepts(&data(1, &[0; 16_000]));
    }
    assert_eq!(client.sent(), []);
    client.connection.release(id(1), 40_000, &mut client.out);
    let sent = client.sent();
    assert_eq!((sent[0].kind, sent[0].stream), (WINDOW_UPDATE, 1));
    assert_eq!(sent[0].payload, 40_000_u32.to_be_bytes());
    for _ in 0..2 {
        client.accepts(&data(1, &[0; 16_000]));
    }
    client.accepts(&data(1, &[0; 16_000]));
    client.assert_reset(1, ErrorCode::FlowControlError);
}

#[test]
fn a_request_with_a_body_and_trailers_is_sent() {
    let mut client = Side::client();
    client.open(Method::Post, false);
    assert_eq!(client.send(1, b"body", false), 4);
    let write = |_: &mut Encoder, out: &mut Vec<u8>| {
        out.extend([0, 1, b'x', 1, b'y']);
        true
    };
    assert!(client.connection.send_head(id(1), &mut client.out, write));
    let kinds = client.sent().into_iter().map(|it| (it.kind, it.flags));
    let expect = [
        (HEADERS, END_HEADERS),
        (DATA, 0),
        (HEADERS, END_HEADERS | END_STREAM),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expect);
    assert!(!client.connection.may_send(id(1)));
}
