//! Seeded simulation: a primary that is replaced now and then and loses its last writes, replicas
//! that replay late, and samples and reports that arrive later still. A read must never miss a
//! surviving write of its session.

use super::super::*;
use crate::connection_pool::tests::simulation::{Dice, for_each_seed};

const SETTINGS: CausalitySettings = CausalitySettings {
    wait_ms: 0,
    stale_ms: 10,
    galera_wait: true,
};

#[test]
fn in_any_world_a_session_reads_its_own_writes() {
    for_each_seed(400, |seed| {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step());
        world.heal();
    });
}

struct Session {
    token: CausalityToken,
    /// Last write that was acknowledged and that the current primary kept.
    wrote: u64,
}

/// Simulated servers. A server's log is only the number of writes in it, and the timeline.
struct World {
    dice: Dice,
    now_us: u64,
    epoch: u64,
    primary: u64,
    replicas: Vec<u64>,
    /// Last known position of each replica, with the time of the report.
    reports: Vec<(Lsn, u64)>,
    sessions: Vec<Session>,
    sampler: Sampler,
    writes: Writes,
    sample: Option<Sample>,
    sample_under_way: Option<Sample>,
}

impl World {
    fn new(seed: u64) -> World {
        let replicas = 2;
        let start = Lsn { timeline: 1, at: 0 };
        World {
            dice: Dice(seed),
            now_us: 1,
            epoch: 1,
            primary: 0,
            replicas: vec![0; replicas],
            reports: vec![(start, 0); replicas],
            sessions: (0..3).map(|_| Session::new()).collect(),
            sampler: Sampler::new(SampleIntervals {
                with_reads_us: 20,
                without_reads_us: 2_000,
            }),
            writes: Writes::new(1, 1),
            sample: None,
            sample_under_way: None,
        }
    }

    fn step(&mut self) {
        self.now_us += self.dice.below(3) as u64;
        match self.dice.below(20) {
            0..=2 => self.write(),
            3..=8 => self.read(),
            9..=11 => self.replay(),
            12..=14 => self.report(),
            15 => self.ask(),
            16..=18 => self.answer(),
            _ if self.dice.one_in(10) => self.promote(),
            _ => {}
        }
    }

    fn write(&mut self) {
        let index = self.dice.below(self.sessions.len());
        self.primary += 1;
        let session = &mut self.sessions[index];
        session.wrote = self.primary;
        // The session may have got its connection before it was notified of the new epoch.
        let is_late = self.epoch > 1 && self.dice.one_in(4);
        let epoch = self.epoch - u64::from(is_late);
        session.token.wrote(self.now_us, epoch);
        self.writes.wrote(0, self.now_us);
    }

    fn read(&mut self) {
        let index = self.dice.below(self.sessions.len());
        self.apply_sample(index);
        let session = &self.sessions[index];
        let requires = session.token.requires(self.epoch);
        for (replayed, (lsn, queried_us)) in self.replicas.iter().zip(&self.reports) {
            let applied = Position::Lsn(*lsn);
            let replica = Replica {
                applied: Some(&applied),
                queried_us: *queried_us,
                lag_ms: None,
                wait: WaitSupport::Nothing,
            };
            if assess(requires, &replica, self.now_us, &SETTINGS) == Freshness::Fresh {
                assert!(
                    *replayed >= session.wrote,
                    "a stale read at {}",
                    self.now_us
                );
            }
        }
    }

    fn apply_sample(&mut self, index: usize) {
        if let Some(sample) = &self.sample {
            self.sessions[index].token.apply_sample(sample);
        }
    }

    fn replay(&mut self) {
        let index = self.dice.below(self.replicas.len());
        let behind = self.primary - self.replicas[index];
        self.replicas[index] += self.dice.below(behind as usize + 1) as u64;
    }

    fn report(&mut self) {
        let index = self.dice.below(self.replicas.len());
        self.reports[index] = (self.lsn(self.replicas[index]), self.now_us);
    }

    fn lsn(&self, at: u64) -> Lsn {
        let timeline = self.epoch as u32;
        Lsn { timeline, at }
    }

    fn ask(&mut self) {
        let last_us = self.writes.last_us();
        let due_us = self.sampler.due_us(self.epoch, last_us, last_us);
        if due_us.is_some_and(|due_us| due_us <= self.now_us) {
            self.sampler.sent(self.now_us);
            self.sample_under_way = Some(Sample {
                epoch: self.epoch,
                queried_us: self.now_us,
                position: Position::Lsn(self.lsn(self.primary)),
            });
        }
    }

    fn answer(&mut self) {
        if let Some(sample) = self.sample_under_way.take() {
            self.sampler.answered(Some(&sample));
            self.sample = Some(sample);
        }
    }

    /// Promotes any replica. Writes that it does not have are lost on the other servers, too.
    fn promote(&mut self) {
        self.epoch += 1;
        self.primary = self.replicas[self.dice.below(self.replicas.len())];
        for replayed in &mut self.replicas {
            *replayed = self.primary.min(*replayed);
        }
        for session in &mut self.sessions {
            session.wrote = session.wrote.min(self.primary);
        }
    }

    /// Checks that every session reads from every replica after all have caught up and all is
    /// reported.
    fn heal(&mut self) {
        self.now_us += 100;
        self.answer();
        self.ask();
        self.answer();
        self.replicas.fill(self.primary);
        let now = (self.lsn(self.primary), self.now_us);
        self.reports.fill(now);
        for index in 0..self.sessions.len() {
            self.apply_sample(index);
            let requires = self.sessions[index].token.requires(self.epoch);
            let applied = Position::Lsn(now.0);
            let replica = Replica {
                applied: Some(&applied),
                queried_us: now.1,
                lag_ms: None,
                wait: WaitSupport::Nothing,
            };
            let judged = assess(requires, &replica, self.now_us, &SETTINGS);
            assert_eq!(judged, Freshness::Fresh, "{requires:?}");
        }
    }
}

impl Session {
    fn new() -> Session {
        Session {
            token: CausalityToken::new(),
            wrote: 0,
        }
    }
}
