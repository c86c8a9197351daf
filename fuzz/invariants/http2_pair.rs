//! Client and server of HTTP/2, both ours, that talk to each other: what one sends the other
//! receives, in order and whole, however the bytes are cut; no window is exceeded, and nothing is
//! left at the end.

use std::collections::VecDeque;

use evenkeel_wire::http2::{BudgetLimits, Limits, StreamId};

#[path = "http2_pair/plan.rs"]
mod plan;
#[path = "http2_pair/side.rs"]
mod side;

pub(crate) use plan::Choices;
use plan::{Plan, magnitude};
pub(crate) use side::Seen;
use side::{Role, Side};

struct World<'a> {
    choose: Choices<'a>,
    client: Side,
    server: Side,
    plans: Vec<Plan>,
    /// Plans that are not begun.
    waiting: VecDeque<usize>,
    now_ms: u64,
    /// The most bytes that are read together.
    cut: usize,
    /// Settings that were changed, and are to be changed back: name and value.
    changed: [Vec<(u16, u32)>; 2],
    /// A side has sent GOAWAY.
    closing: bool,
}

/// Runs one connection with this number of steps that are chosen, then to its end.
pub(crate) fn run(choose: Choices<'_>, steps: usize) -> Seen {
    let budget = BudgetLimits {
        shut_window_ms: u64::MAX,
        block_ms: u64::MAX,
        ..BudgetLimits::default()
    };
    let mut limits = || Limits {
        streams_max: 1 + choose(20) as u32,
        head_bytes_max: 100_000,
        stream_window: 65_535 + magnitude(choose, 200_000) as u32,
        connection_window: 65_535 + magnitude(choose, 200_000) as u32,
        budget,
        ..Limits::default()
    };
    let client = Side::new(Role::Client, limits());
    let server = Side::new(Role::Server, limits());
    let plans: Vec<_> = (0..1 + choose(16)).map(|_| Plan::draw(choose)).collect();
    let cut = [1, 20, usize::MAX, usize::MAX][choose(4)];
    let mut world = World {
        choose,
        client,
        server,
        waiting: (0..plans.len()).collect(),
        plans,
        now_ms: 0,
        cut,
        changed: [Vec::new(), Vec::new()],
        closing: false,
    };
    for _ in 0..steps {
        // The budgets of a peer refill.
        world.now_ms += 20;
        world.step();
    }
    world.settle()
}

impl World<'_> {
    fn step(&mut self) {
        let is_client = (self.choose)(2) == 0;
        match (self.choose)(32) {
            0..=3 => _ = self.open(),
            4..=13 => {
                let most = magnitude(self.choose, 40_000);
                if let Some(stream) = self.any_stream(is_client) {
                    let plans = std::mem::take(&mut self.plans);
                    self.side(is_client).pump(stream, most, &plans);
                    self.plans = plans;
                }
            }
            14..=24 => {
                let most = magnitude(self.choose, 60_000);
                self.deliver(is_client, most);
            }
            25..=28 => {
                let most = magnitude(self.choose, 60_000);
                if let Some(stream) = self.any_stream(is_client) {
                    self.side(is_client).release(stream, most);
                }
            }
            29 | 30 => self.change_setting(is_client),
            _ => match (self.choose)(12) {
                0 => self.close(is_client),
                _ => self.insert(is_client, 0x6, b"12345678"),
            },
        }
    }

    fn side(&mut self, is_client: bool) -> &mut Side {
        match is_client {
            true => &mut self.client,
            false => &mut self.server,
        }
    }

    fn any_stream(&mut self, is_client: bool) -> Option<StreamId> {
        let count = self.side(is_client).exchanges.len();
        let chosen = (self.choose)(count.max(1));
        self.side(is_client).exchanges.keys().nth(chosen).copied()
    }

    fn open(&mut self) -> bool {
        let again = self.client.again.drain(..);
        self.waiting.extend(again);
        let Some(plan) = self.waiting.pop_front() else {
            return false;
        };
        let opened = self.client.open(plan, &self.plans);
        if !opened {
            self.waiting.push_front(plan);
        }
        opened
    }

    /// Delivers up to `most` bytes of a side to the other one. Returns whether there were any.
    fn deliver(&mut self, is_client: bool, most: usize) -> bool {
        let (from, to) = match is_client {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        let count = most.min(from.out.len());
        let bytes: Vec<_> = from.out.drain(..count).collect();
        for part in bytes.chunks(self.cut) {
            to.receive(part, self.now_ms, &self.plans);
        }
        count > 0
    }

    /// Adds a frame of the connection to what a side sends.
    fn insert(&mut self, is_client: bool, kind: u8, payload: &[u8]) {
        let out = &mut self.side(is_client).out;
        out.extend([0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0]);
        out.extend(payload);
    }

    /// Changes a setting to less than what the side really allows, or back.
    fn change_setting(&mut self, is_client: bool) {
        if let Some((name, value)) = self.changed[usize::from(is_client)].pop() {
            return self.send_setting(is_client, name, value);
        }
        let limits = self.side(is_client).limits;
        let (name, most) = match (self.choose)(3) {
            0 => (1, 4_096),
            1 if !is_client => (3, limits.streams_max),
            _ => (4, limits.stream_window),
        };
        let value = magnitude(self.choose, most as usize) as u32;
        self.changed[usize::from(is_client)].push((name, most));
        self.send_setting(is_client, name, value);
    }

    fn send_setting(&mut self, is_client: bool, name: u16, value: u32) {
        let payload = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        self.insert(is_client, 0x4, &payload);
    }

    fn close(&mut self, is_client: bool) {
        self.closing = true;
        let side = self.side(is_client);
        side.connection.close_gracefully(&mut side.out);
    }

    /// Runs all exchanges to their end. A stream that was blocked goes on only after its event.
    fn settle(mut self) -> Seen {
        for is_client in [true, false] {
            while let Some((name, value)) = self.changed[usize::from(is_client)].pop() {
                self.send_setting(is_client, name, value);
            }
        }
        let mut goes_on = true;
        while goes_on {
            self.now_ms += 1;
            goes_on = false;
            while self.open() {
                goes_on = true;
            }
            for is_client in [true, false] {
                goes_on |= self.deliver(is_client, usize::MAX);
                let streams: Vec<_> = self.side(is_client).exchanges.keys().copied().collect();
                let plans = std::mem::take(&mut self.plans);
                for stream in streams {
                    let side = self.side(is_client);
                    goes_on |= side.release(stream, usize::MAX);
                    goes_on |= side.pump(stream, usize::MAX, &plans);
                }
                self.plans = plans;
            }
        }
        assert!(self.closing || self.waiting.is_empty(), "requests wait");
        let mut seen = self.client.seen;
        seen.trailers += self.server.seen.trailers;
        seen.bytes += self.server.seen.bytes;
        for side in [&mut self.client, &mut self.server] {
            side.assert_rested();
            assert!(side.out.is_empty() && side.pending.is_empty());
        }
        seen
    }
}
