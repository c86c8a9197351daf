//! Our client and our server of HTTP/2 talk to each other: sizes, windows, settings, cuts, resets
//! and ends are drawn by a seed.
//!
//! `HTTP2_SEEDS=n` sets the number of connections; `n..m`: those with these seeds.

use std::env;
use std::ops::Range;

#[expect(dead_code, reason = "other tests draw more")]
#[path = "http2_peer/chance.rs"]
mod chance;
#[path = "../../../fuzz/invariants/http2_pair.rs"]
mod invariants;

use chance::Chance;

/// Returns the seeds to run.
fn seeds() -> Range<u64> {
    let Ok(text) = env::var("HTTP2_SEEDS") else {
        return 0..1_000;
    };
    let number = |text: &str| text.parse().expect("HTTP2_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((first, last)) => number(first)..number(last),
        None => 0..number(&text),
    }
}

#[test]
fn our_client_and_our_server_understand_each_other() {
    let mut seen = invariants::Seen::default();
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| {
            let mut chance = Chance::of(seed);
            let steps = chance.size(10, 1_500);
            invariants::run(&mut |limit| chance.below(limit), steps)
        });
        seen.add(result.unwrap_or_else(|_| panic!("seed {seed}")));
    }
    println!("{seen:?}");
    assert!(seen.completed > 10 && seen.early > 10 && seen.resets > 10 && seen.refused > 10);
    assert!(seen.excluded > 10 && seen.interim > 10 && seen.trailers > 10);
}
