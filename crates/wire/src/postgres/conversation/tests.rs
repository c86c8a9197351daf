//! Client histories against the model server, scripted and random.

use super::model::Server;
use super::*;
use crate::postgres::backend::SqlState;
use crate::postgres::frontend::Target;
use crate::postgres::names::names;
use crate::postgres::server_scanner::{ServerScanner, Step};
use crate::postgres::{Parsed, build, frame};

mod settling;
mod streams;

const PARSED: u64 = 1 << 32;

/// A client, the conversation, and two servers: one is reached through the conversation. The other
/// receives only the client's messages and is the reference.
struct Rig {
    server: Server,
    measure: Server,
    conversation: Conversation,
    boundaries: ServerScanner,
    /// Bytes that the server has sent and that were not read yet.
    unread: Vec<u8>,
    /// Bytes that the client has received.
    seen: Vec<u8>,
    /// Names whose Parse was committed and not closed, by token.
    prepared: Vec<u64>,
    failures: usize,
    readies: usize,
    /// How many requests were Evenkeel's own.
    ours: usize,
}

impl Rig {
    fn new() -> Self {
        Rig {
            server: Server::new(),
            measure: Server::new(),
            conversation: Conversation::new(),
            boundaries: ServerScanner::new(),
            unread: Vec::new(),
            seen: Vec::new(),
            prepared: Vec::new(),
            failures: 0,
            readies: 0,
            ours: 0,
        }
    }

    /// Sends the one message in `bytes` from the client.
    fn client(&mut self, bytes: &[u8]) {
        self.measure.receive(bytes);
        self.send(bytes, Origin::Client);
    }

    fn ours(&mut self, bytes: &[u8]) {
        self.ours += 1;
        self.send(bytes, Origin::Ours);
    }

    fn send(&mut self, bytes: &[u8], origin: Origin) {
        let (request, token) = as_request(bytes);
        if self.conversation.sent(request, origin, token) == Sending::Forward {
            self.server.receive(bytes);
        }
        if self.conversation.needs_fence() {
            let mut fence = Vec::new();
            self.conversation.fence(&mut fence);
            self.server.receive(&fence);
            self.ours += 1;
        }
        self.drain_due();
    }

    /// Answers locally a client's Parse of a statement that the server already has.
    fn answered_parse(&mut self, name: &[u8]) {
        let mut bytes = Vec::new();
        build::parse(&mut bytes, name, b"select", &[]);
        self.measure.receive(&bytes);
        let _ = self
            .conversation
            .add_local_reply(LocalReply::ParseComplete, RequestToken(0));
        self.drain_due();
    }

    fn drain_due(&mut self) {
        while let Some(due) = self.conversation.due() {
            if let DueAction::Answer(answer, _) = due {
                answer.write(&mut self.seen, self.conversation.status());
            }
        }
    }

    /// Lets the server process its input, and reads `count` bytes of its output.
    fn hear(&mut self, steps: usize, count: usize) {
        for _ in 0..steps {
            self.server.step();
        }
        let count = count.min(self.server.output.len());
        self.unread.extend(self.server.output.drain(..count));
        self.read();
    }

    fn read(&mut self) {
        loop {
            let bytes = self.unread.clone();
            let consumed = match self.boundaries.next(&bytes) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    self.pass(&bytes[..passed]);
                    let reply = self.conversation.reply(&event).unwrap();
                    self.settle(reply.outcome);
                    if reply.delivery == Delivery::Forward {
                        self.seen.extend_from_slice(&bytes[passed..passed + length]);
                        // Messages longer than the buffer would be handled likewise, but none
                        // occurs here.
                        assert!(self.boundaries.is_at_border() || bytes[passed] != b'E');
                    }
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
            ReplyOutcome::Parsed(token) => self.prepared.push(token.0),
            ReplyOutcome::Closed(token) => self.prepared.retain(|name| *name != token.0),
            ReplyOutcome::Failed { .. } => self.failures += 1,
            ReplyOutcome::Ready => self.readies += 1,
            _ => {}
        }
    }

    /// Processes and reads everything that was sent, and lets the reference catch up.
    fn finish(&mut self) {
        self.hear(10_000, usize::MAX);
        while self.measure.step() {}
    }

    #[track_caller]
    fn check(&mut self) {
        self.finish();
        if self.conversation.is_certain() || self.ours == 0 {
            assert_eq!(
                self.seen.escape_ascii().to_string(),
                self.measure.output.escape_ascii().to_string()
            );
        }
        if self.conversation.is_certain() {
            assert_eq!(self.conversation.is_idle(), self.server.is_idle());
            assert_eq!(self.conversation.status(), self.server.status);
        }
    }
}

fn as_request(bytes: &[u8]) -> (Request, RequestToken) {
    let Parsed::Frame(header, _) = frame::client_header(bytes) else {
        panic!("not one message");
    };
    let Parsed::Frame(names, _) = names(header, bytes) else {
        panic!("not its names");
    };
    let request = Request::of(header.tag, bytes.get(5).copied()).unwrap();
    let token = match (request, names.statement) {
        (Request::Query, _) => 7,
        (Request::Parse | Request::Close, Some(name)) => {
            PARSED + name.of(bytes).iter().map(|b| u64::from(*b)).sum::<u64>()
        }
        _ => 0,
    };
    (request, RequestToken(token))
}

/// Returns the message of a letter. `q` select, `e` an error, `b` begin, `m` commit, `2` two
/// statements. `I` COPY in, `J` COPY in that fails at its second message, `O` COPY out. `P` Parse,
/// `X` a bad Parse, `B` `D` `E` `C` `H` `S` `F`. Parse of a COPY in: `K`, `L` (fails at its second
/// message), `U` (fails before any). `d` `c` COPY data and its end. `w` COPY both ways, `v` one
/// that the server ends, `y` one that fails at the first data. `k` results and COPY out in one.
fn message(letter: char) -> Vec<u8> {
    let mut out = Vec::new();
    let to = &mut out;
    match letter {
        'q' => build::query(to, b"select"),
        'e' => build::query(to, b"bad"),
        'b' => build::query(to, b"begin"),
        'm' => build::query(to, b"commit"),
        '2' => build::query(to, b"select;copyout;;select"),
        'I' => build::query(to, b"copyin;select"),
        'J' => build::query(to, b"copyfails;select"),
        'M' => build::query(to, b"copyin;bad"),
        'T' => build::query(to, b"copytrigger"),
        'O' => build::query(to, b"copyout"),
        'w' => build::query(to, b"stream"),
        'v' => build::query(to, b"streamends"),
        'y' => build::query(to, b"streamfails"),
        'k' => build::query(to, b"select;select;copyout;copyout;select"),
        'P' => build::parse(to, b"a", b"select", &[]),
        'X' => build::parse(to, b"x", b"bad", &[]),
        'K' => build::parse(to, b"a", b"copyin", &[]),
        'L' => build::parse(to, b"a", b"copyfails", &[]),
        'U' => build::parse(to, b"a", b"copytrigger", &[]),
        'B' => build::bind(to, b"", b"a", &[Some(b"1")]),
        'D' => build::describe(to, Target::Statement(b"a")),
        'G' => build::describe(to, Target::Portal(b"")),
        'E' => build::execute(to, b"", 0),
        'C' => build::close(to, Target::Statement(b"a")),
        'H' => build::flush(to),
        'S' => build::sync(to),
        'F' => out.extend_from_slice(b"F\0\0\0\x0a\0\0\0\x01\0\0"),
        'd' => out.extend_from_slice(b"d\0\0\0\x051"),
        'c' => out.extend_from_slice(b"c\0\0\0\x04"),
        other => panic!("no message {other}"),
    }
    out
}

/// Sends the letters (a `.` lets the server catch up) and compares with the reference.
#[track_caller]
fn history(letters: &str) -> Rig {
    let mut rig = Rig::new();
    for letter in letters.chars() {
        match letter {
            '.' => rig.hear(1000, usize::MAX),
            _ => rig.client(&message(letter)),
        }
    }
    rig.check();
    rig
}

#[test]
fn pipelines_are_idle_only_after_their_last_ready_for_query() {
    let rig = history("qPBDGESqqPBESF2");
    assert!(rig.conversation.is_idle());
    assert_eq!(rig.readies, 7);
    let mut rig = history("PBES");
    rig.client(&message('B'));
    rig.hear(100, usize::MAX);
    assert!(!rig.conversation.is_idle(), "a Bind without its Sync");
}

#[test]
fn after_an_error_everything_up_to_the_sync_is_passed_over() {
    for letters in [
        "XBES", "XBEqPS", "PBXEES", "XS.PBES", "X.PBEqS", "e", "X.S.q",
    ] {
        let rig = history(letters);
        assert!(rig.conversation.is_idle(), "{letters}");
        assert_eq!(rig.failures, 1, "{letters}");
    }
}

#[test]
fn what_is_sent_after_an_error_came_back_is_dropped_until_the_sync() {
    let mut rig = history("X");
    assert_eq!(
        rig.conversation
            .sent(Request::Query, Origin::Client, RequestToken(0)),
        Sending::Drop
    );
    let answer = rig
        .conversation
        .add_local_reply(LocalReply::CloseComplete, RequestToken(0));
    assert_eq!(answer, Sending::Drop);
    assert!(!rig.conversation.is_quiet());
    let rig = history("Xq");
    assert!(!rig.conversation.is_quiet(), "the Query was passed over");
}

#[test]
fn a_statement_exists_from_parse_complete_on_and_not_if_its_parse_was_passed_over() {
    let rig = history("PS");
    assert_eq!(rig.prepared, [PARSED + u64::from(b'a')]);
    let mut rig = Rig::new();
    for letter in "XPCS".chars() {
        let bytes = message(letter);
        let (request, token) = as_request(&bytes);
        let _ = rig.conversation.sent(request, Origin::Client, token);
        rig.server.receive(&bytes);
    }
    while rig.server.step() {}
    rig.unread = std::mem::take(&mut rig.server.output);
    let Step::Event { event, .. } = rig.boundaries.next(&rig.unread) else {
        panic!()
    };
    rig.conversation.reply(&event).unwrap();
    let mut found = Vec::new();
    while let Some(due) = rig.conversation.due() {
        found.push(due);
    }
    let token = |name: u8| RequestToken(PARSED + u64::from(name));
    assert_eq!(
        found,
        [
            DueAction::ParseDiscarded(token(b'x')),
            DueAction::ParseDiscarded(token(b'a')),
            DueAction::CloseDiscarded(token(b'a'))
        ]
    );
}

#[test]
fn copy_in_by_query_ends_where_its_data_ends() {
    for letters in ["I.dddc", "Idddcq", "I.ddcq", "O", "Idc.Idcq", "bI.dcm"] {
        let rig = history(letters);
        assert!(rig.conversation.is_idle(), "{letters}");
    }
    assert!(history("I.dd").conversation.is_copying_in());
}

#[test]
fn late_data_of_a_copy_that_failed_does_not_disturb() {
    for letters in ["J.ddddc", "J.dd.ddc.q", "Jddddcq", "J.ddd.c", "T.ddc.q"] {
        let rig = history(letters);
        assert!(rig.conversation.is_idle(), "{letters}");
        assert_eq!(rig.failures, 1, "{letters}");
    }
}

#[test]
fn a_sync_within_copy_in_is_ignored() {
    for letters in ["KBES.dcS", "KBE.dScS", "KBEHS.SSdcSq", "KBESdcSq", "M.dSdc"] {
        let rig = history(letters);
        assert!(rig.conversation.is_idle(), "{letters}");
    }
}

#[test]
fn an_error_during_copy_with_a_sync_on_its_way_is_decided_behind_the_data() {
    for letters in [
        "LBES.dddcS",
        "LBE.S.dd.cS",
        "LBES.dddcSqPBES",
        "LBES.ddd.cS.q",
        "LBES.SdddcSq",
        "bLBES.dddcS",
        "UBES.dcS",
        "UBES.d.cSq",
        "LBE.dddcS",
    ] {
        let rig = history(letters);
        assert!(rig.conversation.is_certain(), "{letters}");
        assert!(rig.conversation.is_quiet(), "{letters}");
        assert_eq!(rig.failures, 1, "{letters}");
    }
}

#[test]
fn a_copy_that_fails_before_it_comes_to_the_sync_is_ready_once_more() {
    let mut rig = Rig::new();
    for letter in "UBES".chars() {
        rig.client(&message(letter));
    }
    // ParseComplete, BindComplete and CopyInResponse; the error is still on its way.
    rig.hear(1_000, 15);
    for letter in "dcSq".chars() {
        rig.client(&message(letter));
    }
    rig.check();
    assert!(rig.conversation.is_idle());
    assert_eq!((rig.failures, rig.readies), (1, 3));
}

#[test]
fn an_error_during_copy_is_not_decidable_where_no_request_of_ours_can_decide_it() {
    // All messages were sent before the server reported the COPY; or the client continues without a
    // Sync; or several Syncs may be answered.
    for letters in ["LBESdddcS", "LBES.ddd.B", "UBESS.", "J.Sddd"] {
        let rig = history(letters);
        assert!(!rig.conversation.is_certain(), "{letters}");
        assert!(!rig.conversation.is_idle(), "{letters}");
    }
    assert!(!history("I.dq").conversation.is_certain());
}

#[test]
fn a_failed_transaction_is_not_idle() {
    assert_eq!(
        history("be").conversation.status(),
        TransactionStatus::Failed
    );
    assert!(!history("be").conversation.is_idle());
    assert!(history("be").conversation.is_quiet());
    assert!(history("bem").conversation.is_idle());
}

#[test]
fn requests_of_ours_leave_no_trace() {
    let mut rig = Rig::new();
    rig.ours(&message('q'));
    rig.client(&message('q'));
    rig.ours(&message('2'));
    rig.ours(&message('e'));
    rig.ours(&message('P'));
    rig.ours(&message('C'));
    rig.ours(&message('S'));
    rig.client(&message('q'));
    rig.check();
    assert!(rig.conversation.is_idle());
    assert_eq!(rig.failures, 1);
}

#[test]
fn an_error_of_ours_inside_the_clients_pipeline_is_the_clients() {
    let mut rig = Rig::new();
    rig.ours(&message('X'));
    for letter in "BES".chars() {
        rig.client(&message(letter));
    }
    rig.finish();
    assert_eq!(rig.seen.iter().filter(|b| **b == b'Z').count(), 1);
    assert_eq!(rig.seen[0], b'E');
    assert!(rig.conversation.is_idle());
}

#[test]
fn answers_of_ours_wait_for_their_turn() {
    let mut rig = Rig::new();
    rig.ours(&message('P'));
    for letter in "PBE".chars() {
        rig.client(&message(letter));
    }
    rig.answered_parse(b"a");
    for letter in "BES".chars() {
        rig.client(&message(letter));
    }
    rig.check();
    assert!(rig.conversation.is_idle());
}

#[test]
fn a_reply_that_nobody_asked_for_is_out_of_sync() {
    let mut conversation = Conversation::new();
    assert_eq!(conversation.reply(&Event::ParseComplete), Err(OutOfSync));
    let _ = conversation.sent(Request::Sync, Origin::Client, RequestToken(0));
    assert_eq!(conversation.reply(&Event::BindComplete), Err(OutOfSync));
    let ready = Event::ReadyForQuery(TransactionStatus::Idle);
    assert!(conversation.reply(&ready).is_ok());
    assert_eq!(conversation.reply(&ready), Err(OutOfSync));
    assert!(conversation.reply(&Event::Notification).is_ok());
}

#[test]
fn a_fatal_error_at_any_time_ends_the_connection() {
    let mut bytes = Vec::new();
    let text = build::ErrorText {
        severity: "FATAL",
        sqlstate: SqlState::ADMIN_SHUTDOWN,
        message: "terminating connection due to administrator command",
        detail: "",
        hint: "",
    };
    build::error(&mut bytes, &text);
    let mut conversation = Conversation::new();
    let Step::Event { event, .. } = ServerScanner::new().next(&bytes) else {
        panic!()
    };
    let reply = conversation.reply(&event).unwrap();
    assert_eq!(reply.outcome, ReplyOutcome::Fatal(SqlState::ADMIN_SHUTDOWN));
    assert!(!conversation.is_idle());
}

/// Seeded generator; deterministic on all platforms.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// Legal beginnings of client histories; the rig adds pauses, splits and requests of Evenkeel.
const PHRASES: [&str; 29] = [
    "q", "e", "b", "m", "2", "PBES", "PBDGEHS", "XBES", "PBEPBES", "PBXEPCS", "DS", "BES", "CS",
    "F", "Idddc", "Jddddc", "Tddc", "O", "KBEdcS", "LBEdddcS", "S", "HPS", "KBESdcS", "LBESddcS",
    "UBESdcS", "wddc", "vdc", "yddc", "k",
];

#[test]
fn any_history_looks_the_same_with_and_without_the_conversation() {
    let mut idle_count = 0;
    for seed in 1..=3_000_u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rig = Rig::new();
        for _ in 0..=chance.below(8) {
            if chance.below(3) == 0 {
                rig.ours(&message(['q', '2'][chance.below(2)]));
            }
            for letter in PHRASES[chance.below(PHRASES.len())].chars() {
                rig.client(&message(letter));
                if chance.below(2) == 0 {
                    let (steps, count) = (chance.below(4), chance.below(40));
                    rig.hear(steps, count);
                }
            }
        }
        println!("seed {seed}");
        rig.check();
        idle_count += usize::from(rig.conversation.is_idle());
    }
    println!("{idle_count} of 3000 ended idle");
    assert!(idle_count > 1_500);
}
