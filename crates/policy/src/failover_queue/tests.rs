//! Tests of waiting for a primary, singly and in seeded simulations.

use super::*;
use crate::connection_pool::tests::simulation::{Dice, for_each_seed};

const SETTINGS: FailoverSettings = FailoverSettings {
    wait_ms: 100,
    queue_length: 3,
    resume_at_once: 2,
};

fn waiting(primary: PrimaryStatus) -> FailoverQueue {
    let mut waiting = FailoverQueue::new(SETTINGS);
    waiting.set_primary_status(primary, 0);
    waiting
}

fn wait(waiting: &mut FailoverQueue, now_ms: u64) -> FailoverTicket {
    match waiting.admit(now_ms) {
        QueueDecision::Wait(ticket) => ticket,
        other => panic!("should wait: {other:?}"),
    }
}

#[test]
fn new_work_goes_only_while_there_is_a_primary_to_stay() {
    for (primary, goes) in [
        (PrimaryStatus::Available, true),
        (PrimaryStatus::Unavailable, false),
    ] {
        let answer = waiting(primary).admit(0);
        assert_eq!(answer == QueueDecision::Proceed, goes, "{primary:?}");
    }
}

#[test]
fn those_who_waited_go_first_and_a_few_at_a_time() {
    let mut waiting = waiting(PrimaryStatus::Unavailable);
    let [one, two, three] = [1, 2, 3].map(|now_ms| wait(&mut waiting, now_ms));
    assert_eq!(
        waiting.set_primary_status(PrimaryStatus::Available, 5),
        [one, two]
    );
    let late = wait(&mut waiting, 4);
    assert_eq!(waiting.done(one, 5), [three]);
    assert_eq!(waiting.done(two, 5), [late]);
    assert_eq!(waiting.admit(5), QueueDecision::Proceed);
}

#[test]
fn a_full_queue_fails_at_once() {
    let mut waiting = waiting(PrimaryStatus::Unavailable);
    for now_ms in 0..3 {
        wait(&mut waiting, now_ms);
    }
    let answer = waiting.admit(3);
    assert_eq!(answer, QueueDecision::Fail(PrimaryError::QueueFull));
}

#[test]
fn who_finds_the_primary_gone_again_waits_on_where_it_was() {
    let mut waiting = waiting(PrimaryStatus::Unavailable);
    let [one, two, three] = [1, 2, 3].map(|now_ms| wait(&mut waiting, now_ms));
    assert_eq!(
        waiting.set_primary_status(PrimaryStatus::Available, 5),
        [one, two]
    );
    assert_eq!(
        waiting.set_primary_status(PrimaryStatus::Unavailable, 5),
        []
    );
    waiting.requeue(one);
    assert_eq!(waiting.done(two, 5), []);
    assert_eq!(waiting.expires_ms(), Some(101));
    assert_eq!(
        waiting.set_primary_status(PrimaryStatus::Available, 5),
        [one, three]
    );
}

#[test]
fn slow_ones_hold_up_the_others_for_a_second_only() {
    let mut waiting = waiting(PrimaryStatus::Unavailable);
    let [one, two, three] = [1, 2, 3].map(|now_ms| wait(&mut waiting, now_ms));
    assert_eq!(
        waiting.set_primary_status(PrimaryStatus::Available, 10),
        [one, two]
    );
    assert_eq!(waiting.expire_resuming(10 + RESUMING_MS - 1), []);
    assert_eq!(waiting.expire_resuming(10 + RESUMING_MS), [three]);
    waiting.requeue(one);
    assert_eq!(waiting.done(two, 2_000), []);
    assert_eq!(
        waiting.set_primary_status(PrimaryStatus::Available, 2_000),
        [one]
    );
}

#[test]
fn who_has_waited_for_long_enough_is_told() {
    let mut waiting = waiting(PrimaryStatus::Unavailable);
    let (one, two) = (wait(&mut waiting, 0), wait(&mut waiting, 50));
    assert_eq!(waiting.expire(99), []);
    let waited_ms = 100;
    let reported = waiting.expire(100);
    assert_eq!(reported, [(one, PrimaryError::NoPrimary { waited_ms })]);
    assert_eq!(waiting.expires_ms(), Some(150));
    assert!(waiting.cancel(two) && !waiting.cancel(two));
    assert!(waiting.is_empty());
}

#[test]
fn in_any_world_everybody_is_answered_once_and_in_time() {
    for_each_seed(300, |seed| {
        let mut world = World {
            dice: Dice(seed),
            now_ms: 0,
            waiting: FailoverQueue::new(SETTINGS),
            primary: PrimaryStatus::Unavailable,
            queued: Vec::new(),
            going: Vec::new(),
        };
        (0..400).for_each(|_| world.step());
        world.heal();
    });
}

struct World {
    dice: Dice,
    now_ms: u64,
    waiting: FailoverQueue,
    primary: PrimaryStatus,
    queued: Vec<FailoverTicket>,
    going: Vec<(FailoverTicket, u64)>,
}

impl World {
    fn step(&mut self) {
        self.now_ms += self.dice.below(8) as u64;
        match self.dice.below(12) {
            0..=4 => self.arrive(),
            5..=7 => self.finish(),
            8 => self.change(),
            9 => self.leave(),
            10 => self.hurry(),
            _ => {}
        }
        self.expire();
        self.check();
    }

    fn arrive(&mut self) {
        let must_wait = self.primary != PrimaryStatus::Available || !self.queued.is_empty();
        match self.waiting.admit(self.now_ms) {
            QueueDecision::Proceed => assert!(!must_wait),
            QueueDecision::Wait(ticket) => {
                assert!(must_wait);
                self.queued.push(ticket);
            }
            QueueDecision::Fail(trouble) => {
                assert_eq!(trouble, PrimaryError::QueueFull);
                assert!(must_wait && self.queued.len() >= SETTINGS.queue_length);
            }
        }
    }

    fn go(&mut self, turn: Vec<FailoverTicket>) {
        assert!(turn.is_empty() || self.primary == PrimaryStatus::Available);
        for ticket in turn {
            assert_eq!(self.queued.iter().min(), Some(&ticket), "not its turn");
            self.queued.retain(|one| *one != ticket);
            self.going.push((ticket, self.now_ms));
        }
    }

    fn finish(&mut self) {
        let Some((ticket, _)) = self.dice.draw(&mut self.going) else {
            return;
        };
        if self.dice.one_in(3) {
            self.waiting.requeue(ticket);
            self.queued.push(ticket);
            self.primary = PrimaryStatus::Unavailable;
        } else {
            let turn = self.waiting.done(ticket, self.now_ms);
            self.go(turn);
        }
    }

    fn change(&mut self) {
        self.primary = [PrimaryStatus::Available, PrimaryStatus::Unavailable][self.dice.below(2)];
        let turn = self.waiting.set_primary_status(self.primary, self.now_ms);
        self.go(turn);
    }

    fn hurry(&mut self) {
        let turn = self.waiting.expire_resuming(self.now_ms);
        self.go(turn);
    }

    fn leave(&mut self) {
        if let Some(ticket) = self.dice.draw(&mut self.queued) {
            assert!(self.waiting.cancel(ticket));
        }
    }

    fn expire(&mut self) {
        for (ticket, _) in self.waiting.expire(self.now_ms) {
            assert!(self.now_ms >= ticket.since_ms + SETTINGS.wait_ms);
            let before = self.queued.len();
            self.queued.retain(|one| *one != ticket);
            assert_eq!(self.queued.len() + 1, before, "told twice");
        }
    }

    fn check(&self) {
        assert_eq!(self.waiting.len(), self.queued.len());
        let going = self.going.iter();
        let recent = going.filter(|(_, since_ms)| self.now_ms < since_ms + RESUMING_MS);
        assert!(recent.count() <= SETTINGS.resume_at_once);
        let oldest_ms = self.queued.iter().map(|ticket| ticket.since_ms).min();
        assert!(oldest_ms.is_none_or(|since_ms| self.now_ms < since_ms + SETTINGS.wait_ms));
        let is_idle = self.primary == PrimaryStatus::Available && self.going.is_empty();
        assert!(!is_idle || self.queued.is_empty(), "waits for nothing");
    }

    fn heal(&mut self) {
        while !self.queued.is_empty() || !self.going.is_empty() {
            self.primary = PrimaryStatus::Available;
            let turn = self.waiting.set_primary_status(self.primary, self.now_ms);
            self.go(turn);
            self.finish();
        }
        self.waiting
            .set_primary_status(PrimaryStatus::Available, self.now_ms);
        assert!(self.queued.is_empty() && self.waiting.is_empty_and_available());
    }
}
