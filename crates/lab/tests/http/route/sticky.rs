//! Tests of `[service.sticky]`: the requests of a client stay on one server while it is there.

use std::collections::BTreeMap;

use crate::client::{Answer, Client};
use crate::origin::Origin;
use crate::peer::{until, until_service};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_cookie_keeps_a_client_on_a_server
    an_unknown_or_forged_cookie_is_a_new_pick
    a_client_of_a_drained_server_moves_and_gets_a_new_cookie
    a_client_of_a_server_that_is_gone_moves
}

const STICKY: &str = "[service.sticky]\ncookie = \"place\"\nttl_ms = 60000\n";

/// Asks with a cookie of this value, besides others.
fn ask(client: &mut Client, value: Option<&str>) -> Answer {
    let cookie = value.map(|value| format!("Cookie: a=b; place={value}; c=d\r\n"));
    let cookie = cookie.unwrap_or_default();
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{cookie}\r\n"));
    client.answer()
}

/// Returns the value of the cookie that an answer sets.
fn given(answer: &Answer) -> Option<String> {
    let cookie = answer.field("Set-Cookie")?;
    let value = cookie.strip_prefix("place=").unwrap().split(';').next();
    value.map(str::to_owned)
}

/// Returns the cookie of each server.
fn cookies(bed: &Bed) -> BTreeMap<String, String> {
    let mut cookies = BTreeMap::new();
    for _ in 0..20 {
        let answer = ask(&mut bed.client(), None);
        cookies.insert(answer.text(), given(&answer).unwrap());
    }
    assert_eq!(cookies.len(), 2, "{cookies:?}");
    cookies
}

fn a_cookie_keeps_a_client_on_a_server(io: &str) {
    let (first, second) = (Origin::named("first"), Origin::named("second"));
    let bed = Bed::new(io, &[&first, &second], STICKY);
    let answer = ask(&mut bed.client(), None);
    let cookie = answer.field("Set-Cookie").unwrap();
    for part in ["; Path=/", "; HttpOnly", "; Max-Age=60", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    for (name, value) in cookies(&bed) {
        let mut kept = bed.client();
        for _ in 0..5 {
            let other = ask(&mut bed.client(), Some(&value));
            assert_eq!((other.text(), given(&other)), (name.clone(), None));
            let same = ask(&mut kept, Some(&value));
            assert_eq!((same.text(), given(&same)), (name.clone(), None));
        }
    }
    for seen in first.seen().iter().chain(&second.seen()) {
        let cookies = seen.field("Cookie");
        assert!(
            matches!(cookies.as_deref(), None | Some("a=b; c=d")),
            "{cookies:?}"
        );
    }
}

fn an_unknown_or_forged_cookie_is_a_new_pick(io: &str) {
    let (first, second) = (Origin::named("first"), Origin::named("second"));
    let bed = Bed::new(io, &[&first, &second], STICKY);
    let valid = given(&ask(&mut bed.client(), None)).unwrap();
    let cut = &valid[..valid.len() - 1];
    for value in [
        "",
        "1",
        "first",
        cut,
        &format!("{valid}0"),
        &"9".repeat(valid.len()),
    ] {
        let answer = ask(&mut bed.client(), Some(value));
        assert_eq!(answer.status, 200, "{value}");
        assert!(given(&answer).is_some_and(|new| new != value), "{value}");
    }
}

fn a_client_of_a_drained_server_moves_and_gets_a_new_cookie(io: &str) {
    let (first, second) = (Origin::named("first"), Origin::named("second"));
    let bed = Bed::new(io, &[&first, &second], STICKY);
    let cookies = cookies(&bed);
    let mut client = bed.client();
    assert_eq!(ask(&mut client, Some(&cookies["first"])).text(), "first");
    let drained = bed.balancer.command(&["drain", first.address()]);
    assert!(drained.unwrap().status.success());
    let mut moved = ask(&mut client, Some(&cookies["first"]));
    until("the drain", || {
        moved = ask(&mut client, Some(&cookies["first"]));
        moved.text() == "second"
    });
    assert_eq!(given(&moved).as_ref(), Some(&cookies["second"]));
    assert_eq!(ask(&mut client, Some(&cookies["second"])).text(), "second");
}

fn a_client_of_a_server_that_is_gone_moves(io: &str) {
    let (first, second) = (Origin::named("first"), Origin::named("second"));
    let bed = Bed::new(io, &[&first, &second], STICKY);
    let cookies = cookies(&bed);
    first.stop_listening();
    first.close_connections();
    for _ in 0..5 {
        let moved = ask(&mut bed.client(), Some(&cookies["first"]));
        assert_eq!(moved.text(), "second");
        assert_eq!(given(&moved).as_ref(), Some(&cookies["second"]));
    }
    until_service(&bed.balancer, "no session", |service| {
        service["sessions"]["current"] == 0
    });
}
