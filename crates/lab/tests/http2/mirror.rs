//! Tests of `mirror` with clients and servers of HTTP/2.

use evenkeel_lab::Balancer;

use crate::frames::{Http2, data};
use crate::on_both_drivers;
use crate::origin::Origin;
use crate::peer::{self, Kind, until};

on_both_drivers! {
    requests_without_a_body_are_copied_over_streams
}

/// Returns a service `web` for HTTP/2, whose mirror reaches its server by HTTP/2 through a further
/// service.
fn config(io: &str, listens: [&str; 2], servers: [&Origin; 2]) -> String {
    let service = |name: &str, keys: &str, http: &str| {
        format!(
            "[[service]]\nname = {name:?}\nprotocol = \"http\"\n{keys}\
             [service.health]\nprobe = \"off\"\n[service.http]\n{http}\n"
        )
    };
    let listen = |index: usize, server: &Origin| {
        format!(
            "listen = {:?}\nservers = [{:?}]\n",
            listens[index],
            server.address()
        )
    };
    let next = format!("servers = [{:?}]\n", listens[1]);
    [
        format!("[engine]\nio = {io:?}\nworkers = 2\n"),
        service("web", &listen(0, servers[0]), "http2 = \"all\""),
        "[[service.route]]\nmirror = \"next\"\n".to_owned(),
        service("next", &next, "server_http2 = \"all\""),
        service("hub", &listen(1, servers[1]), "http2 = \"all\""),
    ]
    .concat()
}

fn requests_without_a_body_are_copied_over_streams(io: &str) {
    let (own, next) = (Origin::named("own"), Origin::named("next"));
    let listens = [(), ()].map(|()| peer::own_address(Kind::V4));
    let config = config(io, [&listens[0], &listens[1]], [&own, &next]);
    let balancer = Balancer::start(&config).unwrap();
    let mut client = Http2::connect(&listens[0]);
    for number in 0..40 {
        let method = ["GET", "HEAD", "DELETE", "POST"][number % 4];
        assert_eq!(client.ask(method, "/empty", &[]).status(), 200);
        let stream = client.open("POST", "/body", &[]);
        client.send(data(stream, "body", true));
        assert_eq!(client.response(stream).text(), "own");
    }
    let copies = |what: &str| {
        let status = balancer.status().unwrap();
        let copies = status["services"][0]["http"]["routes"][0]["copies"].clone();
        let found = copies
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["what"] == what);
        found.unwrap()["count"].as_u64().unwrap()
    };
    until("the copies", || copies("answered") == 40);
    assert_eq!((copies("failed"), copies("dropped")), (0, 0));
    assert_eq!(own.seen().len(), 80);
    let paths = next.paths();
    assert_eq!(paths.len(), 40);
    assert!(paths.iter().all(|path| path == "/empty"), "{paths:?}");
    let next = balancer.status().unwrap()["services"][1].clone();
    let all = &next["http"]["all_pools"];
    assert_eq!(all["requests"], 0, "{all}");
    let connections = all["connections"].as_u64().unwrap();
    assert!(connections <= 2, "streams of few connections: {all}");
}
