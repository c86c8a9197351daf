//! Replays the HTTP fuzzers' corpora, and many inputs that are made of parts of messages.
//!
//! `HTTP_INPUTS=n` sets the number of inputs of each kind; in release mode, millions take seconds.

use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkLimits, Step};
use evenkeel_wire::http::{HeadLimits, Method, Parsed, RequestHead, ResponseHead};

#[path = "../../../fuzz/invariants/http_chunked.rs"]
mod chunked;
#[path = "harness/corpus.rs"]
mod corpus;
#[path = "corpus_http/hyper_server.rs"]
mod hyper_server;
#[path = "corpus_http/parts.rs"]
mod parts;
#[path = "../../../fuzz/invariants/http_request.rs"]
mod request;
#[path = "../../../fuzz/invariants/http_response.rs"]
mod response;
#[path = "../../../fuzz/invariants/http_round.rs"]
mod round;

use corpus::corpus;

/// Checks every file of the corpora, and all beginnings of it.
#[test]
fn every_corpus_file_keeps_the_codecs_promises() {
    type Check = fn(&[u8]);
    let targets: [(&str, usize, Check); 4] = [
        ("http_request", 40, request::check),
        ("http_response", 25, response::check),
        ("http_chunked", 25, chunked::check),
        ("http_round", 10, round::check),
    ];
    for (target, at_least, check) in targets {
        let inputs = corpus(target).expect("a corpus");
        assert!(
            inputs.len() >= at_least,
            "{} seeds of {target}",
            inputs.len()
        );
        for (name, bytes) in inputs {
            println!("{target}/{name}");
            for cut in 0..=bytes.len() {
                check(&bytes[..cut]);
            }
        }
    }
}

/// Checks many inputs, of which more than one in `one_in` must be complete.
fn check_many(
    make: fn(&mut parts::Chance) -> Vec<u8>,
    checks: &[fn(&[u8])],
    is_complete: impl Fn(&[u8]) -> bool,
    one_in: u64,
) {
    let count = parts::count(5_000);
    let mut complete = 0;
    for seed in 0..count {
        let bytes = make(&mut parts::Chance::of(seed));
        complete += u64::from(is_complete(&bytes));
        let result = std::panic::catch_unwind(|| checks.iter().for_each(|check| check(&bytes)));
        assert!(result.is_ok(), "seed {seed}: {}", bytes.escape_ascii());
    }
    println!("{complete} of {count} are complete");
    assert!(complete > count / one_in, "{complete} of {count}");
}

#[test]
fn requests_of_any_parts_are_read_as_other_parsers_read_them() {
    let is_complete =
        |bytes: &[u8]| RequestHead::new().parse(bytes, &HeadLimits::default()) == Parsed::Complete;
    check_many(
        parts::a_request,
        &[request::check, round::check],
        is_complete,
        20,
    );
}

#[test]
fn responses_of_any_parts_are_read_as_other_parsers_read_them() {
    let is_complete = |bytes: &[u8]| {
        let mut head = ResponseHead::new();
        head.parse(bytes, &HeadLimits::default(), Method::Get) == Parsed::Complete
    };
    check_many(
        parts::a_response,
        &[response::check, round::check],
        is_complete,
        20,
    );
}

/// Compares with another parser only, which is fast: `HTTP_INPUTS` may be hundreds of millions.
#[test]
fn another_parser_reads_the_same_in_each_accepted_head() {
    let limits = HeadLimits::default();
    let (mut requests, mut responses) = (RequestHead::new(), ResponseHead::new());
    let mut accepted = [0_u64; 2];
    for seed in 0..parts::count(20_000) {
        let chance = &mut parts::Chance::of(!seed);
        let bytes = parts::a_request(chance);
        requests.clear();
        if requests.parse(&bytes, &limits) == Parsed::Complete {
            request::check_httparse(&requests, &bytes);
            accepted[0] += 1;
        }
        let bytes = parts::a_response(chance);
        responses.clear();
        if responses.parse(&bytes, &limits, Method::Get) == Parsed::Complete {
            response::check_httparse(&responses, &bytes);
            accepted[1] += 1;
        }
    }
    println!("{accepted:?} accepted");
    assert!(accepted.iter().all(|&accepted| accepted > 1_000));
}

#[test]
fn bodies_of_any_parts_are_read_as_another_decoder_reads_them() {
    let is_complete = |bytes: &[u8]| {
        let mut decoder = ChunkDecoder::new(ChunkLimits::default());
        let mut rest = bytes;
        while let Step::Data(range) = decoder.next(rest) {
            rest = &rest[range.end..];
        }
        decoder.is_complete()
    };
    check_many(parts::a_body, &[chunked::check], is_complete, 4);
}

/// Returns the beginning of the names of inputs of which parsing has this result.
fn kind_of(parsed: Parsed) -> &'static str {
    match parsed {
        Parsed::Complete => "ok",
        Parsed::Incomplete => "cut",
        Parsed::Invalid(_) => "bad",
    }
}

fn decoded(bytes: &[u8]) -> &'static str {
    let mut decoder = ChunkDecoder::new(chunked::LIMITS);
    let mut rest = bytes;
    loop {
        match decoder.next(rest) {
            Step::Data(range) => rest = &rest[range.end..],
            Step::Incomplete => return "cut",
            Step::End { .. } => return "ok",
            Step::Invalid(_) => return "bad",
        }
    }
}

#[test]
fn every_seed_file_is_what_its_name_says() {
    fn request(bytes: &[u8]) -> &'static str {
        kind_of(RequestHead::new().parse(bytes, &HeadLimits::default()))
    }
    fn response(bytes: &[u8]) -> &'static str {
        kind_of(ResponseHead::new().parse(bytes, &HeadLimits::default(), Method::Get))
    }
    type Kind = fn(&[u8]) -> &'static str;
    let targets: [(&str, Kind); 3] = [
        ("http_request", request),
        ("http_response", response),
        ("http_chunked", decoded),
    ];
    for (target, kind) in targets {
        for (name, bytes) in corpus(target).expect("a corpus") {
            let named = name.split('-').next();
            let is_seed = matches!(named, Some("ok" | "cut" | "bad"));
            assert!(
                !is_seed || named == Some(kind(&bytes)),
                "{target}/{name}: {}",
                kind(&bytes)
            );
        }
    }
}
