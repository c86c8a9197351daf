//! Tests of bodies: lengths, chunks, trailers, old versions, and ends that come too early.

use crate::client::{Ended, get};
use crate::origin::{Origin, ok, reply};
use crate::peer::until;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_head_request_has_no_body_and_keeps_the_length
    responses_204_and_304_have_no_body
    chunks_and_trailers_pass_in_both_directions
    a_body_of_any_method_is_framed
    a_client_of_http_1_0_gets_a_body_until_the_end
    a_client_of_http_1_0_may_keep_the_connection
    a_server_of_http_1_0_is_asked_once_per_connection
    a_response_until_the_end_becomes_chunks
    a_truncated_response_ends_with_a_reset
    a_truncated_request_never_looks_complete
    a_malformed_chunk_ends_both_sides
    a_malformed_response_is_a_502
}

fn a_head_request_has_no_body_and_keeps_the_length(io: &str) {
    let origin = Origin::new(|seen| match seen.head.starts_with("HEAD") {
        true => Some("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n".to_owned()),
        false => Some(ok("body")),
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.answer_to_head();
        assert_eq!(answer.field("Content-Length").as_deref(), Some("1234"));
        assert_eq!(client.get("/").text(), "body");
    }
    assert!(origin.server.total() <= 2);
}

fn responses_204_and_304_have_no_body(io: &str) {
    let origin = Origin::new(|seen| {
        Some(match seen.path() {
            "/204" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "/304" => {
                "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 9\r\n\r\n".to_owned()
            }
            _ => ok("body"),
        })
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        let answer = client.get("/204");
        assert_eq!((answer.status, answer.field("Content-Length")), (204, None));
        let answer = client.get("/304");
        assert_eq!(answer.field("ETag").as_deref(), Some("\"a\""));
        assert_eq!(client.get("/").text(), "body");
    }
    assert!(origin.server.total() <= 2);
}

fn chunks_and_trailers_pass_in_both_directions(io: &str) {
    let origin = Origin::new(|seen| {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let mut response =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n".to_owned();
        for piece in body.as_bytes().chunks(3) {
            let text = String::from_utf8_lossy(piece);
            response.push_str(&format!("{:x};name=\"value\"\r\n{text}\r\n", piece.len()));
        }
        response.push_str("0\r\nX-Sum: 7\r\nContent-Length: 3\r\n\r\n");
        Some(response)
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for round in 0..3 {
        client.send(
            "POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
             Trailer: X-Md\r\nTE: trailers\r\n\r\n",
        );
        // Byte by byte, so that each state of the decoder meets the end of its input.
        for byte in
            b"5;ext\r\nhello\r\n6 ; a=b\r\n world\r\n0\r\nX-Md: abc\r\nAuthorization: no\r\n\r\n"
        {
            client.send([*byte]);
        }
        let answer = client.answer();
        assert_eq!(answer.text(), "hello world", "round {round}");
        assert_eq!(answer.trailers, "X-Sum: 7\r\n");
    }
    for seen in origin.seen() {
        assert_eq!(seen.body, b"hello world");
        assert_eq!(seen.trailers, "X-Md: abc\r\n");
        assert_eq!(seen.field("TE").as_deref(), Some("trailers"));
    }
}

fn a_body_of_any_method_is_framed(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for method in ["GET", "DELETE", "OPTIONS", "PROPFIND", "PUT", "PATCH"] {
        let prefix = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let length = prefix.len();
        client.send(format!(
            "{method} /{method} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{prefix}"
        ));
        assert_eq!(client.answer().text(), format!("/{method}"));
    }
    let seen = origin.seen();
    assert_eq!(seen.len(), 6, "{seen:#?}");
    assert!(
        seen.iter()
            .all(|seen| seen.body.starts_with(b"GET /smuggled"))
    );
}

fn a_client_of_http_1_0_gets_a_body_until_the_end(io: &str) {
    let origin = Origin::new(|_| {
        let chunks =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        Some(chunks.to_owned())
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.field("Transfer-Encoding"), None);
    assert_eq!(answer.text(), "abcde");
    let seen = origin.only();
    assert!(seen.head.starts_with("GET / HTTP/1.1\r\n"), "{}", seen.head);
}

fn a_client_of_http_1_0_may_keep_the_connection(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.field("Connection").as_deref(), Some("keep-alive"));
        assert_eq!(answer.text(), "/a");
    }
    client.send("GET /b HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().text(), "/b");
    assert_eq!(client.end(), Ended::Clean);
}

fn a_server_of_http_1_0_is_asked_once_per_connection(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        let Some(seen) = incoming.request() else {
            return;
        };
        log(&seen);
        let fields = match seen.path() {
            "/length" => "Content-Length: 3\r\nConnection: keep-alive\r\n",
            _ => "",
        };
        reply(
            incoming.socket,
            format!("HTTP/1.0 200 OK\r\n{fields}\r\nold"),
        );
        if seen.path() == "/length" {
            incoming.request();
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        assert_eq!(client.get("/end").text(), "old");
        assert_eq!(client.get("/length").text(), "old");
    }
    let seen = origin.seen();
    assert_eq!(seen.len(), 6);
    let mut connections: Vec<usize> = seen.iter().map(|seen| seen.connection).collect();
    connections.dedup();
    assert_eq!(connections.len(), 6, "{connections:?}");
}

fn a_response_until_the_end_becomes_chunks(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            reply(incoming.socket, "HTTP/1.1 200 OK\r\n\r\nfirst ");
            reply(incoming.socket, "second");
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!(
            answer.field("Transfer-Encoding").as_deref(),
            Some("chunked")
        );
        assert_eq!(answer.text(), "first second");
    }
}

fn a_truncated_response_ends_with_a_reset(io: &str) {
    let cut = [
        (
            "/length",
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        ),
        ("/none", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
        (
            "/chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        ),
        (
            "/last",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ),
        (
            "/trailer",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n",
        ),
        (
            "/size",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n\r\n",
        ),
    ];
    let origin = Origin::scripted(move |incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            let (_, bytes) = cut.iter().find(|(path, _)| *path == seen.path()).unwrap();
            reply(incoming.socket, bytes);
            if seen.path() != "/size" {
                return;
            }
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    for (path, _) in cut {
        let mut client = bed.client();
        client.send(get(path));
        let (ended, _) = client.try_answer(false).unwrap_err();
        assert_eq!(ended, Ended::Reset, "{path}");
        // A client of HTTP/1.0 sees the end of the body in the end of the connection.
        let mut client = bed.client();
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        let outcome = client.try_answer(false);
        assert_eq!(outcome.unwrap_err().0, Ended::Reset, "{path} by HTTP/1.0");
    }
}

fn a_truncated_request_never_looks_complete(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(mut seen) = incoming.head() {
            if incoming.body(&mut seen).is_some() {
                log(&seen);
            }
            reply(incoming.socket, ok("done"));
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let parts = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ];
    for (number, part) in parts.into_iter().enumerate() {
        let client = bed.client();
        client.send(part);
        until("the server connection", || {
            origin.server.total() == number + 1
        });
        drop(client);
        until("its end", || origin.server.current() == 0);
    }
    assert_eq!(origin.seen(), vec![]);
    bed.until_idle();
}

fn a_malformed_chunk_ends_both_sides(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(mut seen) = incoming.head()
            && incoming.body(&mut seen).is_some()
        {
            log(&seen);
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    for chunk in [
        "zz\r\n",
        "3\r\nabcX\r\n",
        "3\nabc\r\n",
        "-1\r\n",
        "0x3\r\nabc\r\n",
        "fffffffffffffffff\r\n",
    ] {
        let mut client = bed.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("3\r\nabc\r\n");
        let served = origin.server.total();
        until("the beginning at the server", || {
            origin.server.total() >= served
        });
        client.send(chunk);
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{chunk:?}");
        assert_eq!(answer.field("Connection").as_deref(), Some("close"));
        assert_eq!(client.end(), Ended::Clean);
        until("the end of the server connection", || {
            origin.server.current() == 0
        });
    }
    assert_eq!(origin.seen(), vec![]);
}

fn a_malformed_response_is_a_502(io: &str) {
    let responses = [
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
    ];
    let origin = Origin::new(move |seen| {
        let number: usize = seen.path()[1..].parse().unwrap();
        Some(responses[number].to_owned())
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for (number, response) in responses.iter().enumerate() {
        let answer = client.get(&format!("/{number}"));
        assert_eq!(answer.status, 502, "{response:?}: {}", answer.head);
        let names_server = answer.text().contains("127.0.0.1");
        assert!(!names_server, "{}", answer.text());
    }
    assert_eq!(
        origin.seen().len(),
        responses.len(),
        "each connection is used once"
    );
}
