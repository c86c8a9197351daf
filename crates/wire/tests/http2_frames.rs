//! Sequences of frames: the fuzzer's corpus, and sequences drawn by a seed, which another server
//! must accept where ours does.
//!
//! `HTTP2_SEQUENCES=n` sets the number of sequences.

use std::env;

#[path = "http2_peer/chance.rs"]
mod chance;
#[path = "harness/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/invariants/http2_frames.rs"]
mod invariants;
#[path = "http2_frames/other_server.rs"]
mod other_server;
#[path = "http2_frames/our_server.rs"]
mod our_server;
#[path = "http2_frames/sequence.rs"]
mod sequence;

use chance::Chance;
use corpus::corpus;

fn count(otherwise: u64) -> u64 {
    let count = env::var("HTTP2_SEQUENCES").ok();
    count.map_or(otherwise, |count| count.parse().expect("a number"))
}

/// Checks every file of the corpus, and all beginnings of it.
#[test]
fn every_corpus_file_keeps_the_promises_of_the_server() {
    let inputs = corpus("http2_frames").expect("a corpus");
    assert!(inputs.len() >= 20, "{} seeds", inputs.len());
    for (name, bytes) in inputs {
        println!("{name}");
        for cut in 0..=bytes.len() {
            invariants::check(&bytes[..cut]);
        }
        let error = invariants::converse(&bytes, usize::MAX).error;
        let kind = name.split('-').next();
        let is_right = match kind {
            Some("ok") => error.is_none(),
            Some("bad") => error.is_some(),
            _ => true,
        };
        assert!(is_right, "{name}: {error:?}");
    }
}

#[test]
fn any_sequence_of_frames_keeps_the_promises_of_the_server() {
    let count = count(4_000);
    let mut failed = 0;
    for seed in 0..count {
        let bytes = sequence::draw(&mut Chance::of(seed).fork(), true);
        let result = std::panic::catch_unwind(|| invariants::check(&bytes));
        assert!(result.is_ok(), "seed {seed}: {}", bytes.escape_ascii());
        failed += u64::from(invariants::converse(&bytes, usize::MAX).error.is_some());
    }
    println!("{failed} of {count} failed");
    assert!(failed > count / 10 && failed < count * 9 / 10);
}

/// Returns the frames without the last one, if that is cut: ours returns a part of its data. An
/// unfinished field block is cut, too: ours decodes it at its end.
fn whole_frames(bytes: &[u8]) -> &[u8] {
    const END_HEADERS: u8 = 4;
    let (mut end, mut at) = (0, 0);
    while let Some([a, b, c, kind, flags, ..]) = bytes.get(at..) {
        at += 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let is_unfinished = matches!(kind, 1 | 9) && flags & END_HEADERS == 0;
        if at > bytes.len() {
            break;
        }
        if !is_unfinished {
            end = at;
        }
    }
    &bytes[..end]
}

/// Returns whether there is a frame that RFC 9113 does not forbid, and that the other server
/// refuses:
///
/// - a stream that depends on itself, which only RFC 7540 §5.3.1 forbids;
/// - ENABLE_CONNECT_PROTOCOL with a wrong value, which RFC 8441 §3 has a server ignore;
/// - an acknowledgement of SETTINGS that were not sent.
fn is_refused_by_other_rules(mut bytes: &[u8]) -> bool {
    let mut acknowledgements = 0;
    while let Some(([a, b, c, kind, flags, stream @ ..], rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let payload = rest.get(..length).unwrap_or(rest);
        let is_refused = match kind {
            1 | 2 => depends_on(u32::from_be_bytes(*stream), *kind, *flags, payload),
            4 if flags & 1 == 1 => {
                acknowledgements += 1;
                acknowledgements > 1
            }
            4 => payload
                .chunks(6)
                .any(|it| it.starts_with(&[0, 8]) && it[2..] > [0, 0, 0, 1][..]),
            _ => false,
        };
        if is_refused {
            return true;
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    false
}

/// Returns whether the priority in a HEADERS or PRIORITY frame names this stream.
fn depends_on(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> bool {
    const PADDED: u8 = 8;
    const PRIORITIZED: u8 = 0x20;
    let padding = usize::from(kind == 1 && flags & PADDED != 0);
    let has_priority = kind == 2 || flags & PRIORITIZED != 0;
    let dependency = payload.get(padding..).and_then(<[u8]>::first_chunk);
    let is_same = |it: &[u8; 4]| (u32::from_be_bytes(*it) ^ stream) & 0x7fff_ffff == 0;
    has_priority && dependency.is_some_and(is_same)
}

#[test]
fn another_server_accepts_what_ours_accepts() {
    let count = count(100_000);
    let mut accepted = 0;
    for seed in 0..count {
        let chance = &mut Chance::of(!seed);
        let is_damaged = chance.one_in(2);
        let bytes = sequence::draw(chance, is_damaged);
        let bytes = whole_frames(&bytes);
        if is_refused_by_other_rules(bytes) {
            continue;
        }
        let Some(ours) = our_server::read(bytes) else {
            continue;
        };
        accepted += 1;
        let theirs = other_server::read(bytes);
        assert_eq!(theirs, Ok(ours), "seed {seed}: {}", bytes.escape_ascii());
    }
    println!("{accepted} of {count} were accepted");
    assert!(accepted > count / 4);
}
