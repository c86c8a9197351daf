//! DATA of requests: Content-Length, windows, and their credit (RFC 9113 §5.2, §6.9, §8.1.1).

use super::*;

#[test]
fn data_agree_with_content_length() {
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&[("a", "b")]));
    let wrong = [
        ("more", data(1, b"abcd")),
        (
            "more in two frames",
            [data(1, b"ab"), data(1, b"cd")].concat(),
        ),
        ("less", last_data(1, b"ab")),
        ("nothing", last_data(1, b"")),
        ("more at the end", last_data(1, b"abcd")),
        (
            "less, then trailers",
            [data(1, b"ab"), trailers.clone()].concat(),
        ),
    ];
    for (name, bytes) in wrong {
        println!("{name}");
        let mut server = Side::server();
        server.accepts(&post(1, &[("content-length", "3")]));
        server.accepts(&bytes);
        server.assert_reset(1, ErrorCode::ProtocolError);
    }
    let right = [
        last_data(1, b"abc"),
        [data(1, b"a"), last_data(1, b"bc")].concat(),
        [data(1, b"abc"), last_data(1, b"")].concat(),
        [data(1, b"abc"), trailers].concat(),
        frame(DATA, PADDED | END_STREAM, 1, b"\x02abc\0\0"),
    ];
    for bytes in right {
        let mut server = Side::server();
        server.accepts(&post(1, &[("content-length", "3")]));
        server.accepts(&bytes);
        let seen = server.seen();
        assert_eq!(seen[1], Seen::Data(1, b"abc".to_vec()));
        assert!(matches!(seen[2], Seen::End(1) | Seen::Trailers(1)));
    }
}

#[test]
fn a_head_that_ends_the_stream_agrees_with_content_length() {
    let mut server = Side::server();
    let block = request_block("POST", &[("content-length", "3")]);
    server.accepts(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
    assert_eq!(server.seen(), []);
    let sent = server.sent();
    assert_eq!((sent[0].kind, sent[0].stream), (RST_STREAM, 1));
}

/// Returns a server with the smallest windows, which holds what it receives, and two requests.
fn holding() -> Side {
    let limits = Limits {
        stream_window: 65_535,
        connection_window: 100_000,
        ..Limits::default()
    };
    let mut server = Side::server_with(limits);
    server.releases = false;
    server.accepts(HELLO);
    server.accepts(&[post(1, &[]), post(3, &[])].concat());
    server.out.clear();
    server
}

/// Returns DATA frames of this many bytes.
fn much_data(stream: u32, bytes: usize) -> Vec<u8> {
    let bytes = vec![0; bytes];
    bytes
        .chunks(16_384)
        .flat_map(|part| data(stream, part))
        .collect()
}

#[test]
fn data_beyond_the_window_of_a_stream_reset_it() {
    let mut server = holding();
    server.accepts(&much_data(1, 65_535));
    server.accepts(&data(1, b"x"));
    server.assert_reset(1, ErrorCode::FlowControlError);
    server.accepts(&data(3, b"x"));
}

#[test]
fn data_beyond_the_window_of_the_connection_end_it() {
    let mut server = holding();
    server.accepts(&much_data(1, 65_535));
    server.accepts(&much_data(3, 100_000 - 65_535));
    server.refuses(&data(3, b"x"), ErrorCode::FlowControlError);
}

#[test]
fn windows_open_as_bytes_are_released_in_halves() {
    let mut server = holding();
    server.accepts(&much_data(1, 65_535));
    let release = |server: &mut Side, bytes| {
        server.connection.release(id(1), bytes, &mut server.out);
        let sent = server.sent();
        sent.iter()
            .map(|sent| (sent.stream, sent.payload.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(release(&mut server, 32_766), []);
    let half = 32_767_u32.to_be_bytes().to_vec();
    assert_eq!(release(&mut server, 1), [(1, half)]);
    let half = 50_000_u32.to_be_bytes().to_vec();
    assert_eq!(release(&mut server, 17_233), [(0, half)]);
    server.accepts(&much_data(1, 32_767));
}

#[test]
fn more_is_not_released_than_is_held() {
    let mut server = holding();
    server.accepts(&data(1, &[0; 100]));
    server.connection.release(id(1), 1_000_000, &mut server.out);
    assert!(server.sent().is_empty());
    server.accepts(&much_data(1, 65_435));
    server.accepts(&data(1, b"x"));
    server.assert_reset(1, ErrorCode::FlowControlError);
}

#[test]
fn what_one_stream_releases_is_not_of_another() {
    let mut server = holding();
    server.accepts(&[data(1, &[0; 100]), much_data(3, 60_000)].concat());
    server.connection.release(id(1), 1_000_000, &mut server.out);
    assert!(server.sent().is_empty());
}

#[test]
fn no_credit_of_the_connection_is_lost() {
    type Step = fn(&mut Side);
    let steps: [(&str, u32, Step); 6] = [
        ("finished", 60_000, |server| server.finish(1)),
        ("reset by us", 60_000, |server| {
            server
                .connection
                .reset(id(1), ErrorCode::Cancel, &mut server.out);
            server.finish(1);
        }),
        ("reset by the client", 60_000, |server| {
            server.accepts(&reset(1, 8));
            server.finish(1);
        }),
        ("ended", 60_000, |server| {
            server.accepts(&last_data(1, b""));
            server.connection.release(id(1), 60_000, &mut server.out);
        }),
        ("faulty", 60_000, |server| {
            server.accepts(&window_update(1, 0));
            server.finish(1);
        }),
        ("in the middle of a frame", 65_000, |server| {
            let bytes = data(1, &[0; 5_000]);
            server.accepts(&bytes[..1_000]);
            server.finish(1);
            server.accepts(&bytes[1_000..]);
        }),
    ];
    for (name, received, step) in steps {
        println!("{name}");
        let mut server = holding();
        server.accepts(&much_data(1, 60_000));
        step(&mut server);
        let updates = server
            .sent()
            .into_iter()
            .filter(|sent| (sent.kind, sent.stream) == (8, 0));
        let announced: u32 = updates
            .map(|sent| u32::from_be_bytes(*sent.payload.first_chunk().expect("4 bytes")))
            .sum();
        assert_eq!(announced, received);
    }
}

#[test]
fn data_of_ended_streams_and_padding_keep_the_window_of_the_connection() {
    let mut server = holding();
    server.finish(1);
    let mut padded = vec![255];
    padded.extend([0; 255]);
    // Far more than the window.
    for _ in 0..20 {
        server.accepts(&data(1, &[0; 16_384]));
        server.accepts(&data(1, &[0; 16_384]));
        server.accepts(&frame(DATA, PADDED, 1, &padded));
    }
    let mut padded = vec![255];
    padded.extend([0; 256]);
    for _ in 0..400 {
        server.accepts(&frame(DATA, PADDED, 3, &padded));
    }
    let held: usize = server
        .seen()
        .iter()
        .map(|seen| match seen {
            Seen::Data(_, bytes) => bytes.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(held, 400);
}

#[test]
fn a_stream_that_the_client_ended_needs_no_window() {
    let mut server = holding();
    server.accepts(&much_data(1, 40_000));
    server.accepts(&last_data(1, b""));
    server.connection.release(id(1), 40_000, &mut server.out);
    assert!(server.sent().is_empty());
}

#[test]
fn the_rest_of_a_frame_is_skipped_after_a_reset() {
    let mut server = Side::server();
    server.accepts(&post(1, &[]));
    let bytes = last_data(1, b"begin and end");
    server.accepts(&bytes[..14]);
    server
        .connection
        .reset(id(1), ErrorCode::Cancel, &mut server.out);
    server.accepts(&bytes[14..]);
    server.accepts(&get(3));
    let data = Seen::Data(1, b"begin".to_vec());
    assert_eq!(
        server.seen(),
        [Seen::Request(1, false), data, Seen::Request(3, true)]
    );
}
