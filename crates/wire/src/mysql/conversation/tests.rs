//! Client histories against the model server, scripted and random.

use super::model::Server;
use super::*;
use crate::mysql::flags::Capabilities;
use crate::mysql::frame::{PAYLOAD_LENGTH_MAX, frame};
use crate::mysql::server_scanner::{ServerScanner, Step};
use crate::mysql::{Parsed, build};

const NEW: Capabilities = Capabilities::DEPRECATE_EOF;
const OLD: Capabilities = Capabilities(0);

/// A client, the conversation, and two servers: one is reached through the conversation. The other
/// receives only the client's commands and is the reference.
struct Rig {
    server: Server,
    measure: Server,
    conversation: Conversation,
    boundaries: ServerScanner,
    /// Bytes that the server has sent and that were not read yet.
    unread: Vec<u8>,
    /// Bytes that the client has received.
    seen: Vec<u8>,
    prepared: Vec<StatementId>,
    failures: usize,
    done: usize,
}

impl Rig {
    fn new(agreed: Capabilities) -> Self {
        Rig {
            server: Server::new(agreed),
            measure: Server::new(agreed),
            conversation: Conversation::new(Status::AUTOCOMMIT),
            boundaries: ServerScanner::new(agreed),
            unread: Vec::new(),
            seen: Vec::new(),
            prepared: Vec::new(),
            failures: 0,
            done: 0,
        }
    }

    fn client(&mut self, bytes: &[u8]) {
        self.measure.input.push_back(payload(bytes));
        self.send(bytes, Origin::Client);
    }

    fn ours(&mut self, bytes: &[u8]) {
        self.send(bytes, Origin::Ours);
    }

    fn send(&mut self, bytes: &[u8], origin: Origin) {
        let payload = payload(bytes);
        let request = frontend::request(&payload, Capabilities::default()).unwrap();
        let request = Request::of(&request);
        self.conversation.sent(request, origin, RequestToken(7));
        self.server.input.push_back(payload);
        self.drain_due();
    }

    /// Sends a COM_PING that the rig answers itself.
    fn answered_ping(&mut self) {
        let mut bytes = Vec::new();
        build::command(&mut bytes, Code::Ping, b"");
        self.measure.input.push_back(payload(&bytes));
        self.conversation.add_local_reply(RequestToken(1));
        self.drain_due();
    }

    fn drain_due(&mut self) {
        while self.conversation.due().is_some() {
            let ok = crate::mysql::backend::OkPacket {
                status: self.conversation.status(),
                ..Default::default()
            };
            build::ok(&mut self.seen, 1, &ok, self.server.agreed);
        }
    }

    /// Sends the client's file, once it is requested.
    fn file(&mut self) {
        for piece in [&b"one"[..], b""] {
            self.measure.input.push_back(piece.to_vec());
            self.server.input.push_back(piece.to_vec());
        }
        self.conversation.file_sent();
    }

    /// Lets the server handle `steps` packets, and reads `count` bytes of its output.
    fn hear(&mut self, steps: usize, count: usize) {
        for _ in 0..steps {
            if !self.server.step() {
                break;
            }
        }
        let count = count.min(self.server.output.len());
        self.unread.extend(self.server.output.drain(..count));
        self.read();
    }

    fn read(&mut self) {
        while let Some(answer) = self.conversation.expected_reply() {
            let bytes = self.unread.clone();
            let consumed = match self.boundaries.next(&bytes, answer) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    self.pass(&bytes[..passed]);
                    let reply = self.conversation.reply(&event).unwrap();
                    if reply.delivery == Delivery::Forward {
                        self.seen.extend_from_slice(&bytes[passed..passed + length]);
                    }
                    self.settle(reply.outcome);
                    self.drain_due();
                    passed + length
                }
                Step::Wait { passed, .. } => {
                    self.pass(&bytes[..passed]);
                    self.unread.drain(..passed);
                    return;
                }
                Step::Invalid(fault) => panic!("{fault}"),
            };
            self.unread.drain(..consumed);
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        if self.conversation.delivery() == Delivery::Forward {
            self.seen.extend_from_slice(bytes);
        }
    }

    fn settle(&mut self, outcome: ReplyOutcome) {
        match outcome {
            ReplyOutcome::Prepared { statement, .. } => self.prepared.push(statement),
            ReplyOutcome::Failed(..) => self.failures += 1,
            ReplyOutcome::Done(_) | ReplyOutcome::Renewed(_) => self.done += 1,
            ReplyOutcome::FileWanted if self.conversation.is_certain() => self.file(),
            _ => {}
        }
    }

    #[track_caller]
    fn check(&mut self) {
        for _ in 0..3 {
            self.hear(10_000, usize::MAX);
        }
        while self.measure.step() {}
        assert!(self.conversation.is_certain());
        assert_eq!(
            self.seen.escape_ascii().to_string(),
            self.measure.output.escape_ascii().to_string()
        );
        // Values for an unknown statement: servers drop them, the conversation conservatively does
        // not.
        let cautious = self.conversation.has_long_data();
        let idle = self.server.is_idle() && !cautious;
        assert_eq!(self.conversation.is_idle(), idle);
        let transaction = self.conversation.status().has(Status::IN_TRANSACTION);
        assert_eq!(transaction, self.server.in_transaction);
        assert_eq!(self.conversation.pending_count(), 0);
    }
}

fn payload(bytes: &[u8]) -> Vec<u8> {
    match frame(bytes, PAYLOAD_LENGTH_MAX) {
        Parsed::Frame(frame, length) if length == bytes.len() => frame.payload.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Returns the command of a letter. `q` rows, `e` an error, `b` begin, `m` commit, `2` several
/// results, `3` several whose last fails. `P` `R` `X` prepare with rows, without, badly; `E`
/// execute, `C` with a cursor, `F` fetch, `L` long data, `S` reset, `K` close; `p` ping, `Z` reset
/// of the connection. The statement is `id`.
fn message(letter: char, id: StatementId) -> Vec<u8> {
    let mut out = Vec::new();
    let to = &mut out;
    match letter {
        'q' => build::query(to, b"rows"),
        'e' => build::query(to, b"bad"),
        'b' => build::query(to, b"begin"),
        'm' => build::query(to, b"commit"),
        '2' => build::query(to, b"rows;ok;rows"),
        '3' => build::query(to, b"ok;rows;bad;rows"),
        'f' => build::query(to, b"file"),
        'P' => build::prepare(to, b"rows ?"),
        'R' => build::prepare(to, b"ok"),
        'X' => build::prepare(to, b"bad"),
        'E' => build::execute(to, id, 0, b"\x01\0\0\0"),
        'C' => build::execute(to, id, 1, b"\x01\0\0\0"),
        'F' => build::fetch(to, id, 1),
        'L' => build::long_data(to, id, 0, b"x"),
        'S' => build::command(to, Code::StmtReset, &id.0.to_le_bytes()),
        'K' => build::close(to, id),
        'p' => build::command(to, Code::Ping, b""),
        'Z' => build::command(to, Code::ResetConnection, b""),
        other => panic!("{other}"),
    }
    out
}

/// Sends all commands together, then one after the other; the statement is always the first.
#[track_caller]
fn history(letters: &str) -> Rig {
    for agreed in [OLD, NEW] {
        let mut slow = Rig::new(agreed);
        for letter in letters.chars() {
            slow.client(&message(letter, StatementId(1)));
            for _ in 0..3 {
                slow.hear(1, usize::MAX);
            }
        }
        slow.check();
    }
    let mut rig = Rig::new(NEW);
    for letter in letters.chars() {
        rig.client(&message(letter, StatementId(1)));
    }
    if !letters.contains('f') {
        rig.check();
    }
    rig
}

#[test]
fn replies_settle_their_commands() {
    let rig = history("qqe23p");
    assert_eq!((rig.done, rig.failures), (4, 2));
    let rig = history("PREEKX");
    assert_eq!(rig.prepared, [StatementId(1), StatementId(2)]);
}

#[test]
fn a_transaction_is_not_idle() {
    let rig = history("b");
    assert!(!rig.conversation.is_idle() && rig.conversation.is_quiet());
    assert!(history("bm").conversation.is_idle());
    assert!(history("bZ").conversation.is_idle());
}

#[test]
fn an_open_cursor_is_not_idle_until_it_ends() {
    assert!(history("PC").conversation.has_cursors());
    assert!(history("PCFF").conversation.has_cursors());
    for ended in ["PCFFFF", "PCS", "PCK", "PCE", "PCZ"] {
        assert!(history(ended).conversation.is_idle(), "{ended}");
    }
}

#[test]
fn values_sent_in_advance_are_not_idle_until_they_are_used() {
    assert!(history("PL").conversation.has_long_data());
    for ended in [
        "PLE",
        "PLS",
        "PLK",
        "PLZ",
        "PLLC F".replace(' ', "FFF").as_str(),
    ] {
        assert!(history(ended).conversation.is_idle(), "{ended}");
    }
}

#[test]
fn the_last_statement_hangs_on_what_was_prepared_before() {
    let mut rig = Rig::new(NEW);
    let last = |rig: &Rig| rig.conversation.resolve(StatementId::LAST);
    assert_eq!(last(&rig), Resolved::Unknown);
    rig.client(&message('P', StatementId(0)));
    assert_eq!(last(&rig), Resolved::Pending);
    rig.client(&message('C', StatementId::LAST));
    rig.check();
    assert_eq!(last(&rig), Resolved::Known(StatementId(1)));
    assert!(rig.conversation.has_cursors());
    rig.client(&message('K', StatementId::LAST));
    rig.check();
    assert_eq!(last(&rig), Resolved::Unknown);
    rig.client(&message('P', StatementId(0)));
    rig.client(&message('X', StatementId(0)));
    rig.client(&message('E', StatementId::LAST));
    rig.check();
    assert_eq!((last(&rig), rig.failures), (Resolved::Unknown, 2));
}

#[test]
fn replies_to_our_commands_are_swallowed_and_ours_wait_their_turn() {
    let mut rig = Rig::new(OLD);
    rig.client(&message('q', StatementId(1)));
    rig.ours(&message('2', StatementId(1)));
    rig.answered_ping();
    rig.client(&message('e', StatementId(1)));
    rig.ours(&message('3', StatementId(1)));
    rig.answered_ping();
    assert_eq!(rig.conversation.pending_count(), 6);
    rig.check();
}

#[test]
fn a_file_is_read_from_the_client() {
    history("f");
    let mut rig = Rig::new(NEW);
    rig.client(&message('f', StatementId(1)));
    rig.hear(1, 3);
    assert!(!rig.conversation.is_idle());
    rig.check();
}

#[test]
fn a_command_behind_one_that_wants_a_file_makes_all_uncertain() {
    let mut rig = Rig::new(NEW);
    rig.client(&message('f', StatementId(1)));
    rig.client(&message('q', StatementId(1)));
    rig.hear(1, usize::MAX);
    assert!(!rig.conversation.is_certain() && !rig.conversation.is_idle());
}

#[test]
fn a_reply_that_nobody_asked_for_is_an_error() {
    let mut conversation = Conversation::new(Status::AUTOCOMMIT);
    assert_eq!(conversation.reply(&Event::Complete), Err(OutOfSync));
    conversation.sent(Request::Quit, Origin::Client, RequestToken(0));
    assert!(!conversation.is_idle());
}

/// xorshift
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn histories_by_chance_are_seen_as_by_the_client_alone() {
    let letters: Vec<char> = "qebm23PRXECFLSKpZECFLSK".chars().collect();
    for seed in 1..400_u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rig = Rig::new(if seed & 1 == 0 { OLD } else { NEW });
        for _ in 0..40 {
            match chance.below(8) {
                0 => rig.ours(&message(
                    ['q', 'e', '2', '3', 'p'][chance.below(5)],
                    StatementId(0),
                )),
                1 if rig.conversation.status() == Status::AUTOCOMMIT => {}
                2 => rig.hear(chance.below(4), chance.below(40)),
                3 => rig.hear(10, usize::MAX),
                _ => {
                    let id = match chance.below(4) {
                        0 => StatementId::LAST,
                        other => StatementId(other as u32),
                    };
                    rig.client(&message(letters[chance.below(letters.len())], id));
                }
            }
        }
        println!("seed {seed}");
        rig.check();
    }
}
