//! Our server of HTTP/2 and another implementation's client, over a pipe in memory: sizes, windows,
//! cuts, trailers, resets and early answers are drawn by a seed.
//!
//! `HTTP2_SEEDS=n` sets the number of connections; `n..m`: those with these seeds.

use std::env;
use std::ops::Range;

#[path = "http2_peer/chance.rs"]
mod chance;
#[path = "http2_peer/client.rs"]
mod client;
#[path = "http2_peer/server.rs"]
mod server;

use chance::Chance;

/// Returns the seeds to run.
fn seeds() -> Range<u64> {
    let Ok(text) = env::var("HTTP2_SEEDS") else {
        return 0..10_000;
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
    for seed in seeds() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let result = runtime.block_on(connection(seed));
        match result {
            Ok(more) => seen.add(more),
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    println!("{seen:?}");
    assert!(seen.echoes > 10 && seen.trailers > 10 && seen.resets > 10 && seen.early > 10);
}

/// Runs one connection.
async fn connection(seed: u64) -> Result<client::Seen, String> {
    let mut chance = Chance::of(seed);
    // The client writes its first bytes before it reads: our first ones must fit.
    let (ours, theirs) = tokio::io::duplex(chance.size(100, 100_000));
    let server = tokio::spawn(server::serve(ours, chance.fork()));
    let client = client::run(theirs, chance.fork());
    let limit = std::time::Duration::from_secs(60);
    let client = tokio::time::timeout(limit, client);
    let seen = client
        .await
        .map_err(|_| "the client waits for ever".to_owned())??;
    let server = tokio::time::timeout(limit, server).await;
    let server = server.map_err(|_| "the server waits for ever".to_owned())?;
    server.map_err(|error| error.to_string())??;
    Ok(seen)
}
