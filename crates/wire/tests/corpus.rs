//! Replays the fuzzers' corpora, so that every machine checks what a fuzzer once found.

use evenkeel_wire::proxy_header::{Parsed, parse};
use evenkeel_wire::tls_hello;

#[path = "harness/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/invariants/proxy_header.rs"]
mod invariants;
#[path = "../../../fuzz/invariants/tls_hello.rs"]
mod tls_hello_invariants;

use corpus::corpus;

#[test]
fn every_corpus_file_keeps_the_parsers_promises() {
    for (name, bytes) in corpus("proxy_header").unwrap() {
        println!("{name}");
        for cut in 0..=bytes.len() {
            invariants::check(&bytes[..cut]);
        }
    }
}

#[test]
fn every_client_hello_keeps_the_parsers_promises() {
    for (name, bytes) in corpus("tls_hello").unwrap() {
        println!("{name}");
        tls_hello_invariants::check(&bytes);
        let server_name = match tls_hello::parse(&bytes) {
            tls_hello::Parsed::Hello { server_name } => server_name,
            other => panic!("{name}: {other:?}"),
        };
        let expected = (!name.ends_with("nameless")).then_some("shop.example");
        assert_eq!(server_name.as_deref(), expected, "{name}");
    }
}

#[test]
fn every_seed_file_is_what_its_name_says() {
    let seeds = corpus("proxy_header").unwrap();
    for (kind, at_least) in [("ok-", 15), ("cut-", 5), ("bad-", 10)] {
        let named: Vec<_> = seeds
            .iter()
            .filter(|(name, _)| name.starts_with(kind))
            .collect();
        assert!(
            named.len() >= at_least,
            "{} seeds named {kind}*",
            named.len()
        );
        for (name, bytes) in named {
            let found = match parse(bytes) {
                Parsed::Frame(..) => "ok-",
                Parsed::Incomplete => "cut-",
                Parsed::Invalid(_) => "bad-",
            };
            assert_eq!(found, kind, "{name}: {:?}", parse(bytes));
        }
    }
}
