//! Tests of the compression of responses to HTTP/2.

use crate::coded::{decoded, text};
use crate::frames::{headers, request};
use crate::origin::Origin;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    bodies_are_compressed_for_streams
    many_streams_are_compressed_together
    heads_state_no_length_of_a_compressed_body
}

const BOTH: &str = "compress = [\"br\", \"gzip\"]\n";

/// Starts a server whose paths are `/framing/length`.
fn texts() -> Origin {
    Origin::new(|seen| {
        let mut parts = seen.path().split('/').skip(1);
        let framing = parts.next().unwrap();
        let body = text(parts.next().unwrap().parse().unwrap());
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"a\"\r\n";
        let is_head = seen.head.starts_with("HEAD");
        Some(match framing {
            "length" if is_head => format!("{head}Content-Length: {length}\r\n\r\n"),
            "length" => format!("{head}Content-Length: {length}\r\n\r\n{body}"),
            _ => format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\
                 X-After: yes\r\n\r\n"
            ),
        })
    })
}

fn bodies_are_compressed_for_streams(io: &str) {
    let origin = texts();
    let bed = Bed::new(io, &[&origin], BOTH);
    let mut client = bed.client();
    for framing in ["length", "chunked"] {
        for length in [2_000, 60_000, 3_000_000] {
            for coding in ["gzip", "br"] {
                let path = format!("/{framing}/{length}");
                let response = client.ask("GET", &path, &[("accept-encoding", coding)]);
                let name = format!("{path}, {coding}");
                assert!(response.is_complete, "{name}");
                assert_eq!(response.field("content-encoding").as_deref(), Some(coding));
                let tag = format!("W/\"a--{coding}\"");
                assert_eq!(response.field("etag"), Some(tag), "{name}");
                assert_eq!(response.field("content-length"), None, "{name}");
                let is_equal = decoded(coding, &response.body) == text(length).as_bytes();
                assert!(is_equal, "{name}");
                let has_trailers = framing == "chunked";
                assert_eq!(response.trailers.len(), usize::from(has_trailers), "{name}");
            }
        }
    }
    let response = client.ask("GET", "/length/5000", &[]);
    assert_eq!(response.text(), text(5_000));
    assert_eq!(response.field("vary").as_deref(), Some("Accept-Encoding"));
}

fn many_streams_are_compressed_together(io: &str) {
    let origin = texts();
    let bed = Bed::new(io, &[&origin], BOTH);
    let mut client = bed.client();
    // More than the memory of a worker permits for Brotli: the others come uncompressed.
    let fields = [("accept-encoding", "br")];
    let streams: [u32; 60] = std::array::from_fn(|_| {
        let stream = client.stream();
        let fields = request("GET", "/length/400000", &fields);
        client.send(headers(stream, &fields, true));
        stream
    });
    let mut compressed = 0;
    for stream in streams {
        let response = client.response(stream);
        let body = match response.field("content-encoding") {
            Some(coding) => {
                compressed += 1;
                decoded(&coding, &response.body)
            }
            None => response.body,
        };
        assert!(body == text(400_000).as_bytes(), "stream {stream}");
    }
    println!("{io}: {compressed} of 60 streams compressed");
    assert!(compressed >= 10, "{compressed}");
}

fn heads_state_no_length_of_a_compressed_body(io: &str) {
    let origin = texts();
    let bed = Bed::new(io, &[&origin], BOTH);
    let mut client = bed.client();
    let response = client.ask("HEAD", "/length/5000", &[("accept-encoding", "gzip")]);
    assert!(response.is_complete);
    assert_eq!(response.field("content-encoding").as_deref(), Some("gzip"));
    assert_eq!(response.field("content-length"), None);
    let response = client.ask("HEAD", "/length/5000", &[]);
    assert_eq!(response.field("content-length").as_deref(), Some("5000"));
}
