//! Replays the fuzzer's corpus of field blocks, and many lists that are made of parts.
//!
//! `HPACK_LISTS=n` sets the number of lists of each kind.

use std::env;

use evenkeel_wire::http2::hpack::{Decoder, FieldSink};

#[path = "harness/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/invariants/hpack.rs"]
mod invariants;
#[path = "corpus_hpack/lists.rs"]
mod lists;

use corpus::corpus;
use invariants::Connection;
use lists::Chance;

/// Lists of one connection.
const LISTS: u64 = 20;

fn count(otherwise: u64) -> u64 {
    let count = env::var("HPACK_LISTS").ok();
    count.map_or(otherwise, |count| count.parse().expect("a number"))
}

/// Sink that takes no field.
struct Nothing;

impl FieldSink for Nothing {
    fn field(&mut self, _name: &[u8], _value: &[u8]) -> bool {
        false
    }
}

#[test]
fn every_corpus_file_keeps_the_codecs_promises() {
    let inputs = corpus("hpack").expect("a corpus");
    assert!(inputs.len() >= 30, "{} seeds", inputs.len());
    for (name, bytes) in inputs {
        println!("{name}");
        for cut in 0..=bytes.len() {
            invariants::check(&bytes[..cut]);
        }
    }
}

#[test]
fn every_seed_file_is_what_its_name_says() {
    for (name, bytes) in corpus("hpack").expect("a corpus") {
        let mut decoder = Decoder::new(4_096);
        let mut rest = &bytes[..];
        let mut result = Ok(());
        while let (Ok(()), [length, after @ ..]) = (result, rest) {
            let (block, after) = after.split_at(after.len().min(usize::from(*length)));
            result = decoder.decode(block, &mut Nothing);
            rest = after;
        }
        let kind = if result.is_ok() { "ok" } else { "bad" };
        let named = name.split('-').next();
        let is_seed = matches!(named, Some("ok" | "bad"));
        assert!(!is_seed || named == Some(kind), "{name}: {result:?}");
    }
}

#[test]
fn lists_are_decoded_as_they_were_encoded_by_us_and_by_others() {
    for seed in 0..count(20_000) / LISTS {
        let chance = &mut Chance::of(seed);
        let mut connection = Connection::new();
        let mut other = httlib_hpack::Encoder::with_dynamic_size(4_096);
        for list in 0..LISTS {
            let fields = match chance.below(2) {
                0 => lists::any(chance),
                _ => lists::request(chance),
            };
            let block = lists::encode_other(&mut other, &fields, chance);
            let decoded = connection.check_block(&block);
            assert_eq!(decoded, Some(fields), "seed {seed}, list {list}");
        }
    }
}

#[test]
fn damaged_blocks_are_refused_or_decoded_as_others_do() {
    let mut accepted = 0;
    let count = count(20_000) / LISTS;
    for seed in 0..count {
        let chance = &mut Chance::of(!seed);
        let mut connection = Connection::new();
        let mut other = httlib_hpack::Encoder::with_dynamic_size(4_096);
        for _ in 0..LISTS {
            let fields = lists::request(chance);
            let mut block = lists::encode_other(&mut other, &fields, chance);
            if chance.below(2) == 0 {
                chance.damage(&mut block);
            }
            if connection.check_block(&block).is_none() {
                break;
            }
            accepted += 1;
        }
    }
    println!("{accepted} blocks of {count} connections are accepted");
    assert!(accepted > count / 2, "{accepted} of {count}");
}

#[test]
fn accepted_requests_are_heads_of_http_1_1_with_the_same_meaning() {
    let mut accepted = 0;
    let count = count(100_000);
    for seed in 0..count {
        let fields = lists::request(&mut Chance::of(seed));
        for end in [false, true] {
            let result = std::panic::catch_unwind(|| invariants::check_request(&fields, end));
            assert!(result.is_ok(), "seed {seed}: {fields:?}");
            accepted += u64::from(result.is_ok_and(|accepted| accepted));
        }
    }
    println!("{accepted} of {count} lists are accepted, with and without a body");
    assert!(accepted > count / 5, "{accepted} of {count}");
}
