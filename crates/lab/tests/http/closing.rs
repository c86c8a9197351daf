//! Tests of the end of a client's connection after its last response.

use std::time::Duration;

use crate::client::{Client, Ended};
use crate::origin::{Origin, ok};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_client_that_sends_too_much_gets_its_last_answer
    a_slow_reader_gets_the_whole_of_a_long_last_answer
    a_client_that_does_not_end_its_side_is_closed
    an_answer_of_our_own_ends_the_connection_without_a_reset
}

const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// TO SEE THIS RED: close the socket in place of the stage `Lingering`.
fn a_client_that_sends_too_much_gets_its_last_answer(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    for requests in 1..=20 {
        let mut client = bed.client();
        client.send(LAST);
        until("the request", || origin.seen().len() == requests);
        for _ in 0..20 {
            client.send([b'x'; 1_000]);
        }
        assert_eq!(client.answer().text(), "/last");
        assert_eq!(client.end(), Ended::Clean);
    }
    bed.until_idle();
}

/// TO SEE THIS RED: in `Stream::poll_end`, do not wait for `poll_sent`.
fn a_slow_reader_gets_the_whole_of_a_long_last_answer(io: &str) {
    const LENGTH: usize = 3_000_000;
    let long = ok(&"x".repeat(LENGTH));
    let origin = Origin::new(move |_| Some(long.clone()));
    let bed = Bed::new(io, &[&origin], "");
    for request in [LAST, "GET /last HTTP/1.0\r\n\r\n"] {
        let mut client = Client::of(peer::connect_with_room(&bed.listen, 4 << 10));
        client.send(request);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(client.answer().body.len(), LENGTH);
        assert_eq!(client.end(), Ended::Clean);
        drop(client);
        bed.until_idle();
    }
}

/// TO SEE THIS RED: set no limit for the stage `Lingering`.
fn a_client_that_does_not_end_its_side_is_closed(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    // A busy machine may delay one of them past the limit.
    let has_lingered = (0..5).any(|_| {
        let mut client = bed.client();
        client.send(LAST);
        assert_eq!(client.answer().text(), "/last");
        assert_eq!(client.end(), Ended::Clean);
        let is_open = bed.status()["sessions"]["current"] == 1;
        bed.until_idle();
        is_open
    });
    assert!(has_lingered, "the end comes before the client's end");
}

fn an_answer_of_our_own_ends_the_connection_without_a_reset(io: &str) {
    let bed = Bed::new(io, &[&Origin::echo()], "");
    let mut client = bed.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    client.send([b'x'; 100_000]);
    assert_eq!(client.answer().status, 400);
    assert_eq!(client.end(), Ended::Clean);
    bed.until_idle();
}
