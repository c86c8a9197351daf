//! Our server of HTTP/2 and another implementation's client, and our client and its server, over a
//! pipe in memory: sizes, windows, cuts, trailers, resets and early answers are drawn by a seed.
//!
//! `HTTP2_SEEDS=n` sets the number of connections; `n..m`: those with these seeds.

use std::env;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

#[path = "http2_peer/chance.rs"]
mod chance;
#[path = "http2_peer/client.rs"]
mod client;
#[path = "http2_peer/other_server.rs"]
mod other_server;
#[path = "http2_peer/our_client.rs"]
mod our_client;
#[path = "../../../fuzz/invariants/http2_pair/plan.rs"]
mod plan;
#[path = "http2_peer/server.rs"]
mod server;
#[path = "../../../fuzz/invariants/http2_pair/side.rs"]
mod side;

use chance::Chance;
use plan::Plan;

/// Returns the seeds to run.
fn seeds(otherwise: u64) -> Range<u64> {
    let Ok(text) = env::var("HTTP2_SEEDS") else {
        return 0..otherwise;
    };
    let number = |text: &str| text.parse().expect("HTTP2_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((first, last)) => number(first)..number(last),
        None => 0..number(&text),
    }
}

#[test]
fn another_client_gets_what_our_server_sends() {
    let mut seen = client::Seen::default();
    for seed in seeds(10_000) {
        let result = runtime().block_on(connection(seed));
        match result {
            Ok(more) => seen.add(more),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!("{seen:?}");
    assert!(seen.echoes > 10 && seen.trailers > 10 && seen.resets > 10 && seen.early > 10);
}

#[test]
fn another_server_gets_what_our_client_sends() {
    let mut seen = side::Seen::default();
    for seed in seeds(1_000) {
        let local = tokio::task::LocalSet::new();
        let result = local.block_on(&runtime(), connection_to_server(seed));
        match result {
            Ok(more) => seen.add(more),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!("{seen:?}");
    assert!(seen.completed > 10 && seen.early > 10 && seen.resets > 10);
    assert!(seen.refused > 10 && seen.trailers > 10);
}

/// Returns the plan without interim responses, and with fields of distinct names, whose order every
/// implementation keeps.
fn for_another_server(mut plan: Plan) -> Plan {
    plan.interim = 0;
    for message in [&mut plan.request, &mut plan.response] {
        for (number, (name, _)) in message.fields.iter_mut().enumerate() {
            if name != "content-length" {
                *name = format!("x-{number}");
            }
        }
    }
    plan
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    runtime.expect("a runtime")
}

/// Runs one connection of our client.
async fn connection_to_server(seed: u64) -> Result<side::Seen, String> {
    let mut chance = Chance::of(seed);
    let count = chance.size(1, 12);
    let plans = (0..count).map(|_| Plan::draw(&mut |limit| chance.below(limit)));
    let plans: Rc<Vec<_>> = Rc::new(plans.map(for_another_server).collect());
    let (ours, theirs) = tokio::io::duplex(chance.size(100, 100_000));
    let (done, client_done) = tokio::sync::oneshot::channel();
    let server = other_server::serve(theirs, Rc::clone(&plans), chance.fork(), client_done);
    let server = tokio::task::spawn_local(server);
    let limit = Duration::from_secs(60);
    let client = our_client::run(ours, &plans, chance.fork(), done);
    let seen = match tokio::time::timeout(limit, client).await {
        Ok(seen) => seen,
        Err(_) => Err("the client waits for ever".to_owned()),
    };
    let server = match tokio::time::timeout(limit, server).await {
        Ok(ended) => ended.map_err(|error| error.to_string())?,
        Err(_) => Err("the server waits for ever".to_owned()),
    };
    match (seen, server) {
        (Ok(seen), Ok(())) => Ok(seen),
        (seen, server) => Err(format!(
            "client: {:?}, server: {:?}",
            seen.err(),
            server.err()
        )),
    }
}

/// Runs one connection.
async fn connection(seed: u64) -> Result<client::Seen, String> {
    let mut chance = Chance::of(seed);
    // The client writes its first bytes before it reads: our first ones must fit.
    let (ours, theirs) = tokio::io::duplex(chance.size(100, 100_000));
    let server = tokio::spawn(server::serve(ours, chance.fork()));
    let client = client::run(theirs, chance.fork());
    let limit = Duration::from_secs(60);
    let client = tokio::time::timeout(limit, client);
    let seen = client
        .await
        .map_err(|_| "the client waits for ever".to_owned())??;
    let server = tokio::time::timeout(limit, server).await;
    let server = server.map_err(|_| "the server waits for ever".to_owned())?;
    server.map_err(|error| error.to_string())??;
    Ok(seen)
}
