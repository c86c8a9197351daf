//! Simulates a service: servers fail, flap and recover, clients connect and disconnect, operators
//! drain and weigh.
//!
//! After every step the decisions are compared with a second, simple implementation of the rules. A
//! failure prints its seed; `SIMULATION_SEED=n cargo test -p evenkeel-policy --test simulation`
//! repeats it.

use std::sync::Arc;

use evenkeel_policy::health::{
    Change, Health, HealthSettings, HealthState, PassiveFailure, ProbeOutcome,
};
use evenkeel_policy::ramp::effective_weight;
use evenkeel_policy::{
    Algorithm, Load, Member, MemberSet, Pick, PickRequest, RotationCursor, ServerSet,
};

const SEEDS: u64 = 600;
const STEPS: u64 = 500;
const RETRIES: usize = 3;
const LEAP_MS_MAX: u64 = 800;

#[test]
fn in_any_world_decisions_keep_the_rules() {
    if let Ok(seed) = std::env::var("SIMULATION_SEED") {
        run(seed.parse().expect("SIMULATION_SEED is a number"));
        return;
    }
    (0..SEEDS).for_each(run);
}

fn run(seed: u64) {
    let _shown = SeedOnPanic(seed);
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
        world.check();
    }
    world.heal();
}

struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat: SIMULATION_SEED={}", self.0);
        }
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value ^ (value >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.roll() >> 20) % limit
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}

/// A server: its true state, the expected state, and counters maintained by the test.
struct Server {
    alive: bool,
    monitor_locked_out: bool,
    draining: bool,
    weight: u32,
    backup: bool,
    slow_start_ms: u64,
    load: Arc<Load>,
    max_connections: Option<u32>,
    sessions: u32,
    health: Health,
    probe_at_ms: u64,
    /// Failures, by probes and clients, since the last success or change.
    failures: u32,
    /// Failed probes since the last passed one or change.
    failed_probes: u32,
    /// Passed probes since the last failed one or change.
    passes: u32,
    changes: u32,
}

impl Server {
    fn new(settings: HealthSettings, dice: &mut Dice) -> Server {
        let max_connections = [None, Some(3), Some(20)][dice.below(3) as usize];
        let health = Health::new(settings, 0);
        Server {
            alive: !dice.one_in(4),
            monitor_locked_out: dice.one_in(8),
            draining: false,
            weight: 1 + dice.below(4) as u32,
            backup: dice.one_in(4),
            slow_start_ms: [0, 0, 3_000][dice.below(3) as usize],
            load: Arc::new(Load::new(max_connections)),
            max_connections,
            sessions: 0,
            probe_at_ms: health.next_probe_in_ms(dice.roll()),
            health,
            failures: 0,
            failed_probes: 0,
            passes: 0,
            changes: 0,
        }
    }

    fn takes_clients(&self) -> bool {
        self.health.state() != HealthState::Down && !self.draining && self.weight > 0
    }

    fn ramps_at(&self, now_ms: u64) -> bool {
        now_ms - self.health.since_ms() < self.slow_start_ms + LEAP_MS_MAX
    }

    fn is_full(&self) -> bool {
        self.max_connections.is_some_and(|max| self.sessions >= max)
    }

    fn member(&self, id: usize, now_ms: u64) -> Member {
        let up_for_ms = now_ms - self.health.since_ms();
        Member {
            id: id as u64,
            weight: effective_weight(self.weight, up_for_ms, self.slow_start_ms).weight,
            backup: self.backup,
            accepting: self.health.state().takes_clients() && !self.draining,
            load: self.load.clone(),
        }
    }

    fn reset_counts(&mut self) {
        self.failures = 0;
        self.failed_probes = 0;
        self.passes = 0;
        self.changes += 1;
    }
}

struct World {
    dice: Dice,
    now_ms: u64,
    settings: HealthSettings,
    algorithm: Algorithm,
    cursor: Arc<RotationCursor>,
    servers: Vec<Server>,
    pool: ServerSet,
    /// The server of each live session.
    sessions: Vec<usize>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(seed);
        let settings = any_settings(&mut dice);
        let count = 1 + dice.below(6);
        let servers = (0..count)
            .map(|_| Server::new(settings.clone(), &mut dice))
            .collect();
        let algorithm = Algorithm::ALL[seed as usize % Algorithm::ALL.len()];
        let cursor = Arc::new(RotationCursor::default());
        let mut world = World {
            dice,
            now_ms: 0,
            settings,
            algorithm,
            pool: ServerSet::new(algorithm, Vec::new(), cursor.clone()),
            cursor,
            servers,
            sessions: Vec::new(),
        };
        world.rebuild();
        world
    }

    fn rebuild(&mut self) {
        let members = self.servers.iter().enumerate();
        let members = members
            .map(|(id, server)| server.member(id, self.now_ms))
            .collect();
        self.pool = ServerSet::new(self.algorithm, members, self.cursor.clone());
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..45 => self.client_comes(),
            45..75 => self.client_leaves(),
            75..90 => self.time_passes(),
            90..95 => self.fate_strikes(),
            _ => self.operator_acts(),
        }
    }

    fn client_comes(&mut self) {
        let mut tried = MemberSet::none();
        for _ in 0..=RETRIES {
            let expected = self.open_servers(&tried);
            let request = PickRequest {
                key: self.dice.roll(),
                tried: &tried,
                random: self.dice.roll(),
                now_us: self.now_ms * 1_000,
            };
            let pick = self.pool.pick(&request);
            let Pick::Server(index) = pick else {
                assert_eq!(expected, Err(pick));
                return;
            };
            let open = expected.expect("a server was picked though none is open");
            assert!(open.contains(&index), "picked {index}, open are {open:?}");
            self.servers[index].sessions += 1;
            self.sessions.push(index);
            if self.connects(index) {
                return;
            }
            self.end_session(self.sessions.len() - 1);
            tried.insert(index);
        }
    }

    /// Returns the servers that may be picked, or the expected refusal.
    fn open_servers(&self, tried: &MemberSet) -> Result<Vec<usize>, Pick> {
        let taking = |&index: &usize| self.servers[index].takes_clients();
        let all: Vec<usize> = (0..self.servers.len()).filter(taking).collect();
        let primary = all.iter().any(|&index| !self.servers[index].backup);
        let of_tier = |index: &&usize| self.servers[**index].backup != primary;
        let tier: Vec<usize> = all.iter().filter(of_tier).copied().collect();
        assert_eq!(tier.len(), self.pool.eligible_count());
        let untried: Vec<usize> = tier
            .into_iter()
            .filter(|&index| !tried.contains(index))
            .collect();
        if untried.is_empty() {
            return Err(Pick::NoneUp);
        }
        let has_room = |&index: &usize| !self.servers[index].is_full();
        let open: Vec<usize> = untried.into_iter().filter(has_room).collect();
        if open.is_empty() {
            Err(Pick::AllFull)
        } else {
            Ok(open)
        }
    }

    fn connects(&mut self, index: usize) -> bool {
        let last = self.is_last(index);
        let now_ms = self.now_ms;
        let server = &mut self.servers[index];
        if server.alive {
            let took_us = 100 + self.dice.below(5_000);
            server.load.observe_latency(now_ms * 1_000, took_us);
            // Only sometimes, because a proxy need not report every client.
            if self.dice.one_in(2) {
                let change = server.health.served(now_ms);
                server.failures = server.failed_probes;
                self.changed(index, change);
            }
            return true;
        }
        let sign = [
            PassiveFailure::ConnectFailed,
            PassiveFailure::ClosedBeforeAnyByte,
        ][self.dice.below(2) as usize];
        server.failures += 1;
        let change = server.health.passive(now_ms, sign, last);
        if let Some(change) = &change {
            assert!(!last, "the last server was taken out by a passive sign");
            assert_eq!(change.to, HealthState::Down);
            let half_open = change.from == HealthState::Starting && server.changes > 0;
            let row = server.failures >= self.settings.fall;
            assert!(row || half_open, "down after {} failures", server.failures);
        }
        if self.settings.probing && server.health.state() != HealthState::Down {
            assert_eq!(
                server.health.next_probe_in_ms(self.dice.roll()),
                0,
                "a sign calls a probe"
            );
            server.probe_at_ms = now_ms;
        }
        self.changed(index, change);
        false
    }

    fn is_last(&self, index: usize) -> bool {
        let mut others = self
            .servers
            .iter()
            .enumerate()
            .filter(|&(other, _)| other != index);
        !others.any(|(_, server)| server.takes_clients())
    }

    fn client_leaves(&mut self) {
        if self.sessions.is_empty() {
            return;
        }
        let which = self.dice.below(self.sessions.len() as u64) as usize;
        self.end_session(which);
    }

    fn end_session(&mut self, which: usize) {
        let index = self.sessions.swap_remove(which);
        self.servers[index].sessions -= 1;
        self.servers[index].load.release();
    }

    fn time_passes(&mut self) {
        self.now_ms += self.dice.below(LEAP_MS_MAX);
        for index in 0..self.servers.len() {
            if self.servers[index].probe_at_ms <= self.now_ms {
                self.probe(index);
            }
        }
        if self
            .servers
            .iter()
            .any(|server| server.ramps_at(self.now_ms))
        {
            self.rebuild();
        }
    }

    fn probe(&mut self, index: usize) {
        let now_ms = self.now_ms;
        let server = &mut self.servers[index];
        let change = match (self.settings.probing, server.alive) {
            (false, _) => server.health.tick(now_ms),
            (true, true) => {
                server.passes += 1;
                server.failures = 0;
                server.failed_probes = 0;
                let outcome = match server.monitor_locked_out {
                    true => ProbeOutcome::LoginRefused(String::from("access denied")),
                    false => ProbeOutcome::Passed,
                };
                let change = server.health.probe(now_ms, outcome);
                let reported = server.health.monitor_problem().is_some();
                assert_eq!(reported, server.monitor_locked_out);
                change
            }
            (true, false) => {
                server.passes = 0;
                server.failures += 1;
                server.failed_probes += 1;
                server
                    .health
                    .probe(now_ms, ProbeOutcome::Failed(String::from("refused")))
            }
        };
        self.check_probe(index, change.as_ref());
        self.changed(index, change);
        let wait_ms = self.servers[index]
            .health
            .next_probe_in_ms(self.dice.roll());
        let longest_ms = self
            .settings
            .dead_interval_ms_max
            .max(self.settings.interval_ms * 2)
            .max(10_000);
        assert!(
            wait_ms <= longest_ms + longest_ms / 10,
            "the next probe is in {wait_ms} ms"
        );
        self.servers[index].probe_at_ms = now_ms + wait_ms;
    }

    /// Checks that a probe changes the state exactly when the required number of results is
    /// reached.
    fn check_probe(&self, index: usize, change: Option<&Change>) {
        let server = &self.servers[index];
        let fall = self.settings.fall;
        match change.map(|change| (change.from, change.to)) {
            Some((HealthState::Up, HealthState::Down)) => assert!(server.failures >= fall),
            Some((HealthState::Down, HealthState::Up)) => {
                assert_eq!(server.passes, self.settings.rise)
            }
            Some((HealthState::Down, HealthState::Starting)) => assert!(!self.settings.probing),
            Some((HealthState::Starting, to)) => assert_eq!(
                to == HealthState::Up,
                server.failures == 0 || !self.settings.probing
            ),
            Some(other) => panic!("a change from and to: {other:?}"),
            None if !self.settings.probing => {}
            None => match server.health.state() {
                HealthState::Starting => panic!("the first probe decides"),
                HealthState::Up => assert!(server.failed_probes < fall),
                HealthState::Down => assert!(server.passes < self.settings.rise),
            },
        }
    }

    fn changed(&mut self, index: usize, change: Option<Change>) {
        let Some(change) = change else { return };
        let server = &mut self.servers[index];
        assert_eq!(change.to, server.health.state());
        assert_eq!(change.at_ms, server.health.since_ms());
        assert_eq!(change.reason, server.health.reason());
        assert_ne!(change.from, change.to);
        server.reset_counts();
        server.probe_at_ms = self.now_ms + server.health.next_probe_in_ms(self.dice.roll());
        self.rebuild();
    }

    fn fate_strikes(&mut self) {
        let index = self.dice.below(self.servers.len() as u64) as usize;
        let server = &mut self.servers[index];
        if self.dice.one_in(5) {
            server.monitor_locked_out = !server.monitor_locked_out;
            return;
        }
        server.alive = !server.alive;
        if !server.alive && self.dice.one_in(2) {
            for which in (0..self.sessions.len()).rev() {
                if self.sessions[which] == index {
                    self.end_session(which);
                }
            }
        }
    }

    fn operator_acts(&mut self) {
        let index = self.dice.below(self.servers.len() as u64) as usize;
        let server = &mut self.servers[index];
        match self.dice.below(5) {
            0 => server.draining = !server.draining,
            1 => server.weight = self.dice.below(4) as u32,
            2 => server.backup = !server.backup,
            3 => {
                server.max_connections = [None, Some(1), Some(9)][self.dice.below(3) as usize];
                server.load.set_max_connections(server.max_connections);
            }
            _ => {
                self.settings.dead_interval_ms_max = 500 + self.dice.below(20_000);
                for server in &mut self.servers {
                    let before = server.health.state();
                    server.health.update_settings(self.settings.clone());
                    assert_eq!(server.health.state(), before);
                }
            }
        }
        self.rebuild();
    }

    fn check(&self) {
        for (index, server) in self.servers.iter().enumerate() {
            let live = self.sessions.iter().filter(|&&on| on == index).count();
            assert_eq!(
                server.load.active() as usize,
                live,
                "server {index}: a reservation is lost"
            );
            assert_eq!(server.sessions as usize, live);
        }
    }

    /// Checks that every server returns and serves after all faults have ended.
    fn heal(&mut self) {
        while !self.sessions.is_empty() {
            self.client_leaves();
        }
        for server in &mut self.servers {
            server.alive = true;
            server.draining = false;
            server.weight = server.weight.max(1);
        }
        self.rebuild();
        let until_ms = self.now_ms + 200_000;
        while self.now_ms < until_ms {
            self.time_passes();
        }
        self.check();
        for server in &self.servers {
            assert_eq!(
                server.health.state(),
                HealthState::Up,
                "{}",
                server.health.reason()
            );
        }
        self.client_comes();
        assert_eq!(self.sessions.len(), 1, "the client is served");
    }
}

fn any_settings(dice: &mut Dice) -> HealthSettings {
    HealthSettings {
        interval_ms: 200 + dice.below(3_000),
        timeout_ms: 1_000,
        rise: 1 + dice.below(3) as u32,
        fall: 1 + dice.below(4) as u32,
        dead_interval_ms_max: 500 + dice.below(20_000),
        probing: !dice.one_in(5),
    }
}
