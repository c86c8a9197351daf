//! Tests of `to` with several services: requests are split by weight, and clients with a cookie
//! stay.

use evenkeel_lab::Balancer;

use crate::client::{Answer, Client};
use crate::origin::Origin;
use crate::peer::{self, Kind};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    requests_are_split_by_weight
    a_client_with_a_cookie_stays_whatever_the_weights_become
    a_service_without_a_server_gets_no_requests
}

/// Returns a service `web` whose only route splits its requests between the services `old` and
/// `new`, with these weights and servers. `more` are keys of both.
fn config(
    (io, listen): (&str, &str),
    (old, new): (u32, u32),
    more: &str,
    servers: [&str; 2],
) -> String {
    let mut config = format!(
        "[engine]\nio = {io:?}\nworkers = 2\n\
         [[service]]\nname = \"web\"\nprotocol = \"http\"\nlisten = {listen:?}\n\
         [[service.route]]\nto = [{{ service = \"old\", weight = {old} }}, \
         {{ service = \"new\", weight = {new} }}]\n"
    );
    for (name, server) in ["old", "new"].into_iter().zip(servers) {
        config.push_str(&format!(
            "[[service]]\nname = {name:?}\nprotocol = \"http\"\nservers = [{server}]\n\
             [service.health]\nprobe = \"off\"\n{more}"
        ));
    }
    config
}

fn address(origin: &Origin) -> String {
    format!("{:?}", origin.address())
}

fn bed(io: &str, weights: (u32, u32), more: &str, servers: [&str; 2]) -> Bed {
    let listen = peer::own_address(Kind::V4);
    let config = config((io, &listen), weights, more, servers);
    let balancer = Balancer::start(&config).unwrap();
    Bed { listen, balancer }
}

/// Returns how many of these requests reached the service `new`.
fn of_new(client: &mut Client, requests: usize) -> usize {
    let answers = (0..requests).map(|_| client.get("/").text());
    answers.filter(|name| name == "new").count()
}

fn requests_are_split_by_weight(io: &str) {
    let (old, new) = (Origin::named("old"), Origin::named("new"));
    let servers = [&*address(&old), &*address(&new)];
    let bed = bed(io, (90, 10), "", servers);
    let mut client = bed.client();
    // Of 2,000 requests 200; the limits are more than 6 standard deviations away.
    let count = of_new(&mut client, 2_000);
    println!("{io}: {count} of 2000 requests with 10 of 100");
    assert!((110..290).contains(&count), "{count}");
    for (weights, expect) in [((1, 0), 0), ((0, 1), 300)] {
        let changed = config((io, &bed.listen), weights, "", servers);
        bed.balancer.reload(&changed).unwrap();
        assert_eq!(of_new(&mut client, 300), expect, "{weights:?}");
    }
    let output = bed.balancer.command(&["explain", "GET http://a/"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("one of the services old (0 of 1), new (1 of 1)"),
        "{text}"
    );
}

fn ask(client: &mut Client, cookie: Option<&str>) -> (Answer, Option<String>) {
    let cookie = cookie.map(|value| format!("Cookie: {value}\r\n"));
    let cookie = cookie.unwrap_or_default();
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\n{cookie}\r\n"));
    let answer = client.answer();
    let set = answer.field("Set-Cookie");
    let set = set.map(|cookie| cookie.split(';').next().unwrap().to_owned());
    (answer, set)
}

fn a_client_with_a_cookie_stays_whatever_the_weights_become(io: &str) {
    let (old, new) = (Origin::named("old"), Origin::named("new"));
    let servers = [&*address(&old), &*address(&new)];
    let sticky = "[service.sticky]\n";
    let bed = bed(io, (1, 1), sticky, servers);
    let mut client = bed.client();
    let first: Vec<_> = (0..40).map(|_| ask(&mut client, None)).collect();
    let cookie_of = |name: &str| {
        let found = first.iter().find(|(answer, _)| answer.text() == name);
        found.unwrap().1.clone().unwrap()
    };
    for weights in [(1, 1), (1, 0), (0, 1)] {
        let changed = config((io, &bed.listen), weights, sticky, servers);
        bed.balancer.reload(&changed).unwrap();
        for name in ["old", "new"] {
            let cookie = cookie_of(name);
            for _ in 0..30 {
                let (answer, set) = ask(&mut client, Some(&cookie));
                assert_eq!((&*answer.text(), set), (name, None), "{weights:?}");
            }
        }
    }
    assert!(old.seen().iter().all(|seen| seen.field("Cookie").is_none()));
}

fn a_service_without_a_server_gets_no_requests(io: &str) {
    let (old, new) = (Origin::named("old"), Origin::named("new"));
    let without_weight = format!("{{ address = {:?}, weight = 0 }}", new.address());
    let servers = [&*address(&old), &*without_weight];
    let bed = bed(io, (1, 9), "[service.sticky]\n", servers);
    let mut client = bed.client();
    assert_eq!(of_new(&mut client, 100), 0);
    assert!(new.seen().is_empty());
}
