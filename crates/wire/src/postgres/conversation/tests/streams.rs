//! COPY in both directions, with any interleaving and any split of its messages.

use super::*;
use crate::postgres::backend::CommandTag;

/// Streams that either side ends in order; requests that are pipelined after them; and failures.
const STREAMS: [&str; 12] = [
    "w.d.d.c", "wddc", "wc", "w.dc.q", "wddcqw.c", "v.c", "v.ddc.q", "vdcq", "kw.dck", "y.dddc",
    "yd.d.c.q", "ydcq",
];

#[test]
fn a_stream_is_over_when_both_sides_have_ended_it() {
    for letters in STREAMS {
        let rig = history(letters);
        assert!(rig.conversation.is_certain(), "{letters}");
        assert!(rig.conversation.is_idle(), "{letters}");
        let failures = usize::from(letters.starts_with('y'));
        assert_eq!(rig.failures, failures, "{letters}");
    }
}

#[test]
fn a_stream_is_the_same_wherever_what_the_server_says_is_cut() {
    for letters in STREAMS {
        for length in 1..=60 {
            let mut rig = Rig::new();
            for letter in letters.chars().filter(|letter| *letter != '.') {
                rig.client(&message(letter));
                rig.hear(1_000, length);
            }
            for _ in 0..1_000 {
                rig.hear(1_000, length);
            }
            rig.check();
            assert!(rig.conversation.is_idle(), "{letters}, {length}");
        }
    }
}

#[test]
fn who_streams_is_not_idle_until_its_own_end_was_sent() {
    for letters in ["w", "w.d", "wd"] {
        let rig = history(letters);
        assert!(rig.conversation.is_streaming(), "{letters}");
        assert!(!rig.conversation.is_quiet(), "{letters}");
    }
    let rig = history("v.d");
    assert!(
        rig.conversation.is_streaming(),
        "only the server has ended it"
    );
    assert!(!history("w.c").conversation.is_streaming());
    assert!(!history("y.d").conversation.is_streaming(), "it failed");
}

#[test]
fn a_stream_that_the_server_leaves_without_its_end_is_over() {
    // A walsender of a server that stops sends CommandComplete and disconnects.
    let mut rig = history("w.d");
    let completed = Event::CommandComplete(CommandTag(b"COPY 0"));
    rig.conversation.reply(&completed).unwrap();
    assert!(!rig.conversation.is_streaming());
    assert!(!rig.conversation.is_idle());
}

#[test]
fn what_is_no_data_ends_a_stream_in_a_way_that_nobody_can_follow() {
    for request in [Request::Query, Request::Sync, Request::Parse] {
        let mut rig = history("w.d");
        let sending = rig
            .conversation
            .sent(request, Origin::Client, RequestToken(0));
        assert_eq!(sending, Sending::Forward, "{request:?}");
        assert!(!rig.conversation.is_certain(), "{request:?}");
    }
    let mut conversation = Conversation::new();
    for request in [Request::Query, Request::Query] {
        let _ = conversation.sent(request, Origin::Client, RequestToken(0));
    }
    conversation.reply(&Event::CopyBoth).unwrap();
    assert!(!conversation.is_certain(), "the server reads it as data");
}
