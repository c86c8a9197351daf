//! Tests with real servers and clients: nginx, Node, Python and Go, and hostile requests to each.

use std::io::{Read, Write};
use std::net::TcpStream;

use evenkeel_lab::attack::{self, Kind, Origin, Verdict};

use crate::{Bed, on_both_drivers};

on_both_drivers! {
    real_servers_answer_ordinary_requests
    real_servers_see_what_was_sent_or_nothing
}

fn origins() -> Vec<Origin> {
    let started = Kind::ALL.into_iter().map(Origin::start);
    let origins: Vec<Origin> = started
        .filter_map(|started| {
            started
                .inspect_err(|error| println!("skipped: {error:#}"))
                .ok()
        })
        .collect();
    assert!(origins.iter().any(|origin| origin.kind == Kind::Nginx));
    origins
}

fn real_servers_answer_ordinary_requests(io: &str) {
    for origin in origins() {
        let bed = Bed::of(io, &[&origin.address], "");
        let mut client = bed.client();
        for number in 0..20 {
            let path = format!("/get/{number}");
            assert_eq!(client.get(&path).text(), path, "{:?}", origin.kind);
            let path = format!("/post/{number}");
            let body = "x".repeat(number * 3_000);
            assert_eq!(client.post(&path, &body).text(), path, "{:?}", origin.kind);
            client.send(format!(
                "PUT /chunked/{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                 5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-Trailer: a\r\n\r\n"
            ));
            assert_eq!(client.answer().text(), format!("/chunked/{number}"));
            client.send(format!("HEAD /head/{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.answer_to_head().status, 200, "{:?}", origin.kind);
        }
        let mut old = TcpStream::connect(&bed.listen).unwrap();
        old.write_all(b"GET /old HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        old.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{:?}: {answer}",
            origin.kind
        );
        assert!(answer.ends_with("/old"), "{:?}: {answer}", origin.kind);
    }
}

/// A sixth of the inputs; `evenkeel-lab attack` runs all of them.
fn real_servers_see_what_was_sent_or_nothing(io: &str) {
    let all = attack::all();
    assert!(all.len() >= 400, "{}", all.len());
    let inputs: Vec<attack::Input> = all.into_iter().step_by(6).collect();
    for origin in origins() {
        let rows = attack::run(io, &origin, &inputs).unwrap();
        let is_fault = |row: &&attack::Row| matches!(row.verdict, Verdict::Fault(_));
        let faults: Vec<_> = rows.iter().filter(is_fault).collect();
        assert!(faults.is_empty(), "{:?}: {faults:#?}", origin.kind);
        let exact = rows
            .iter()
            .filter(|row| row.verdict == Verdict::Exact)
            .count();
        println!(
            "{io}, {:?}: {} inputs, {exact} exact",
            origin.kind,
            rows.len()
        );
        assert!(
            exact > rows.len() / 2,
            "{:?}: {exact} of {}",
            origin.kind,
            rows.len()
        );
    }
}
