//! Checks invariants for any bytes of a MySQL server, in any conversation, in pieces of any length.
//!
//! An input consists of the negotiated capabilities (8 bytes), the length of the client's bytes
//! (4), those bytes, and the server's bytes.

use evenkeel_wire::mysql::conversation::{
    Conversation, Delivery, Origin, ReplyOutcome, Request, RequestToken,
};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frame::{PAYLOAD_LENGTH_MAX, frame};
use evenkeel_wire::mysql::rewrite::{Rewrite, Transcoder};
use evenkeel_wire::mysql::server_scanner::{End, Event, HELD_LENGTH_MAX, ServerScanner, Step};
use evenkeel_wire::mysql::trackers::Trackers;
use evenkeel_wire::mysql::{Parsed, frontend};

/// Panics if following `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let Some(input) = Input::read(bytes) else {
        return;
    };
    let whole = follow(
        &input,
        input.agreed,
        input.server,
        input.server.len().max(1),
    );
    for piece in [1, 3, 7, 64, 1000] {
        let cut = follow(&input, input.agreed, input.server, piece);
        assert_eq!(cut, whole, "in pieces of {piece}");
    }
    transcode(&input, input.agreed, false);
    let same = transcode(&input, input.agreed, true);
    // In a broken list of trackers, the data after the fault is omitted.
    let kept = same.get(..whole.consumed) == input.server.get(..whole.consumed);
    assert!(kept || whole.broken);
    if whole.invalid {
        return;
    }
    for other in others(input.agreed) {
        let there = transcode(&input, other, true);
        let heard = follow(&input, other, &there, there.len().max(1));
        // If bytes are missing, one of the forms may contain one more event than the other.
        let both = heard.settled.iter().zip(&whole.settled);
        let differ = both.filter(|(left, right)| left != right).count();
        let lengths = heard.settled.len().abs_diff(whole.settled.len());
        assert!(differ == 0 && lengths <= 1, "{heard:?} {whole:?}");
    }
}

/// Returns capabilities in which the client's side differs from the server's.
pub(crate) fn others(agreed: Capabilities) -> [Capabilities; 3] {
    let eof = Capabilities::DEPRECATE_EOF;
    let track = Capabilities::SESSION_TRACK;
    let flip = |bits: Capabilities| Capabilities(agreed.0 ^ bits.0);
    [flip(eof), flip(track), flip(eof.with(track))]
}

pub(crate) struct Input<'a> {
    pub(crate) agreed: Capabilities,
    pub(crate) client: &'a [u8],
    pub(crate) server: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (agreed, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (client, server) = rest.split_at_checked(length)?;
        let agreed = Capabilities(u64::from_le_bytes(*agreed)).both(Capabilities::SPOKEN);
        Some(Input {
            agreed,
            client,
            server,
        })
    }
}

/// Observed result of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) settled: Vec<String>,
    pub(crate) consumed: usize,
    pub(crate) idle: bool,
    pub(crate) certain: bool,
    broken: bool,
    invalid: bool,
}

pub(crate) struct Follower<'a> {
    pub(crate) conversation: Conversation,
    client: &'a [u8],
    /// Capabilities by which the commands are parsed: those of the client's side.
    agreed: Capabilities,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(input: &Input<'a>) -> Self {
        let mut follower = Follower {
            conversation: Conversation::new(Status::AUTOCOMMIT),
            client: input.client,
            agreed: input.agreed,
        };
        follower.send();
        follower
    }

    fn packet(&mut self) -> Option<&'a [u8]> {
        let Parsed::Frame(packet, length) = frame(self.client, PAYLOAD_LENGTH_MAX) else {
            return None;
        };
        self.client = &self.client[length..];
        Some(packet.payload)
    }

    /// Sends commands until one expects a reply.
    fn send(&mut self) {
        while self.conversation.expected_reply().is_none() && self.conversation.is_certain() {
            let Some(payload) = self.packet() else { return };
            let Ok(request) = frontend::request(payload, self.agreed) else {
                self.client = &[];
                return;
            };
            let request = Request::of(&request);
            self.conversation
                .sent(request, Origin::Client, RequestToken(0));
        }
    }

    pub(crate) fn settle(&mut self, settled: ReplyOutcome, event: &Event<'_>) {
        match settled {
            ReplyOutcome::FileWanted => {
                while self.packet().is_some_and(|piece| !piece.is_empty()) {}
                self.conversation.file_sent();
            }
            // The captured logins are fast ones: the client replies only to a request for a plugin.
            ReplyOutcome::LoginGoesOn(_) => {
                if *event == Event::Login(0xfe) {
                    self.packet();
                }
            }
            _ => self.send(),
        }
    }
}

pub(crate) fn follow(input: &Input<'_>, agreed: Capabilities, server: &[u8], piece: usize) -> Seen {
    let mut follower = Follower::new(input);
    let mut boundaries = ServerScanner::new(agreed);
    let (mut settled, mut consumed, mut end) = (Vec::new(), 0_usize, 0_usize);
    let (mut broken, mut invalid) = (false, false);
    'all: while end < server.len() {
        end = end.saturating_add(piece).min(server.len());
        while let Some(answer) = follower.conversation.expected_reply() {
            match boundaries.next(&server[consumed..end], answer) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    assert!(length <= HELD_LENGTH_MAX);
                    consumed = consumed.saturating_add(passed).saturating_add(length);
                    assert!(consumed <= end);
                    let Ok(reply) = follower.conversation.reply(&event) else {
                        break 'all;
                    };
                    assert_eq!(reply.delivery, Delivery::Forward);
                    settled.push(format!("{:?}", reply.outcome));
                    broken |= has_broken_trackers(&event);
                    follower.settle(reply.outcome, &event);
                }
                Step::Wait { passed, need } => {
                    consumed = consumed.saturating_add(passed);
                    assert!(consumed <= end && need > end.saturating_sub(consumed));
                    assert!(need <= HELD_LENGTH_MAX);
                    break;
                }
                Step::Invalid(fault) => {
                    // The number of bytes passed before is not reported.
                    settled.push(format!("{fault:?}"));
                    consumed = 0;
                    invalid = true;
                    break 'all;
                }
            }
        }
    }
    Seen {
        settled: settled.into_iter().filter(|one| one != "Nothing").collect(),
        consumed,
        idle: follower.conversation.is_idle(),
        certain: follower.conversation.is_certain(),
        broken,
        invalid,
    }
}

fn has_broken_trackers(event: &Event<'_>) -> bool {
    let (Event::Ok(ok) | Event::ResultEnd(End::Ok(ok))) = event else {
        return false;
    };
    let mut trackers = Trackers::new(ok.session_state);
    let _ = trackers.by_ref().count();
    trackers.is_broken()
}

/// Returns the bytes for a client that negotiated `client`.
pub(crate) fn transcode(input: &Input<'_>, client: Capabilities, keep: bool) -> Vec<u8> {
    let mut follower = Follower::new(input);
    let mut boundaries = ServerScanner::new(input.agreed);
    let mut transcoder = Transcoder::new(input.agreed, client);
    let mut server = input.server.to_vec();
    let (mut out, mut consumed) = (Vec::new(), 0_usize);
    while let Some(answer) = follower.conversation.expected_reply() {
        let bytes = server[consumed..].to_vec();
        let (passed, event, length) = match boundaries.next(&bytes, answer) {
            Step::Event {
                passed,
                event,
                length,
            } => (passed, Some(event), length),
            Step::Wait { passed, .. } => (passed, None, 0),
            Step::Invalid(_) => return out,
        };
        let rest = &mut server[consumed..];
        let (before, rest) = rest.split_at_mut(passed);
        transcoder.passed(before);
        out.extend_from_slice(before);
        consumed += passed + length;
        let Some(event) = event else { return out };
        let packet = &mut rest[..length];
        if transcoder.event(&event, packet, &mut out, |_| keep) == Rewrite::Same {
            out.extend_from_slice(packet);
        }
        let Ok(reply) = follower.conversation.reply(&event) else {
            return out;
        };
        follower.settle(reply.outcome, &event);
    }
    out
}
