//! Tests with real servers and proxies: ordinary and hostile requests to each.

use std::io::{Read, Write};
use std::net::TcpStream;

use evenkeel_lab::attack::{self, Input, Kind, Origin, ProxyKind, Row, Verdict};

use crate::{Bed, on_both_drivers};

on_both_drivers! {
    real_servers_answer_ordinary_requests
    real_servers_see_what_was_sent_or_nothing
}

fn origins() -> Vec<Origin> {
    let started = Kind::QUICK.into_iter().map(Origin::start);
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
    let (http1, http2) = (attack::all(), attack::all_http2());
    assert!(http1.len() >= 400 && http2.len() >= 400);
    let inputs: Vec<Input> = http1.into_iter().chain(http2).step_by(6).collect();
    for origin in origins() {
        let rows = attack::run(io, &origin, &inputs).unwrap();
        assert_clean(&format!("{:?}", origin.kind), &rows);
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

#[track_caller]
fn assert_clean(name: &str, rows: &[Row]) {
    let is_fault = |row: &&Row| matches!(row.verdict, Verdict::Fault(_));
    let faults: Vec<_> = rows.iter().filter(is_fault).collect();
    assert!(faults.is_empty(), "{name}: {faults:#?}");
}

/// Returns a few inputs of each kind.
fn few() -> Vec<Input> {
    attack::all().into_iter().step_by(25).collect()
}

/// Prints why there are no results: a program that is not installed is no failure.
fn started(name: &str, rows: anyhow::Result<Vec<Row>>) -> Option<Vec<Row>> {
    rows.inspect_err(|error| println!("skipped: {name}: {error:#}"))
        .ok()
}

#[test]
fn many_more_servers_see_what_was_sent_or_nothing() {
    let inputs = few();
    let others = Kind::ALL.iter().filter(|kind| !Kind::QUICK.contains(kind));
    for kind in others {
        let name = format!("{kind:?}");
        let rows = Origin::start(*kind).and_then(|origin| attack::run("auto", &origin, &inputs));
        if let Some(rows) = started(&name, rows) {
            assert_clean(&name, &rows);
        }
    }
}

#[test]
fn proxies_in_front_desynchronise_nothing() {
    let inputs = few();
    for kind in ProxyKind::ALL {
        let name = format!("{kind:?}");
        let origin = Origin::start(Kind::Python).unwrap();
        let rows = attack::run_through("auto", kind, &origin, &inputs);
        if let Some(rows) = started(&name, rows) {
            assert_clean(&name, &rows);
            assert!(rows.iter().any(|row| row.seen > 0), "{name}");
        }
    }
}
