//! Tests of `Date`, which each final response has (RFC 9110 §6.6.1).

use crate::client::field_values;
use crate::origin::Origin;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    each_answer_of_our_own_has_a_date
    a_response_without_a_date_gets_one
}

const FIRST: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

#[track_caller]
fn assert_current(date: Option<String>) {
    let date = date.unwrap();
    let is_date = date.len() == 29 && date.ends_with(" GMT");
    assert!(is_date && date != FIRST, "{date}");
}

fn each_answer_of_our_own_has_a_date(io: &str) {
    let origin = Origin::echo();
    let route = format!(
        "[[service.route]]\npath = \"/old\"\nredirect = \"/new\"\n\
         [[service.route]]\npath = \"/dated\"\nrespond = {{ status = 410 }}\n\
         set_response = {{ date = \"{FIRST}\" }}\n"
    );
    let bed = Bed::new(io, &[&origin], &route);
    let mut client = bed.client();
    let redirect = client.get("/old");
    let dated = client.get("/dated").field("Date");
    assert_eq!(dated.as_deref(), Some(FIRST));
    client.send("GET / HTTP/1.1\r\nHost : a\r\n\r\n");
    let refusal = client.answer();
    for (answer, status) in [(redirect, 307), (refusal, 400)] {
        assert_eq!(answer.status, status);
        assert_current(answer.field("Date"));
    }
}

/// The server's own stays, and so does that of a route.
fn a_response_without_a_date_gets_one(io: &str) {
    let origin = Origin::new(|request| {
        let date = match request.path() {
            "/dated" => format!("date: {FIRST}\r\n"),
            _ => String::new(),
        };
        Some(format!(
            "HTTP/1.1 200 OK\r\n{date}Content-Length: 0\r\n\r\n"
        ))
    });
    let route =
        format!("[[service.route]]\npath = \"/set\"\nset_response = {{ Date = \"{FIRST}\" }}\n");
    let bed = Bed::new(io, &[&origin], &route);
    let mut client = bed.client();
    for path in ["/dated", "/set"] {
        let answer = client.get(path);
        assert_eq!(field_values(&answer.head, "Date"), [FIRST], "{path}");
    }
    let answer = client.get("/");
    assert_eq!(field_values(&answer.head, "Date").len(), 1);
    assert_current(answer.field("Date"));
}
