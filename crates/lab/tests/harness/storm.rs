//! Runs sessions while faults strike repeatedly.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::rng::TestRng;
use super::{LIMIT, SetOnDrop};

const SESSIONS: usize = 8;
const BLOWS: usize = 60;

/// Progress of each session.
pub(crate) struct Storm {
    rounds: [AtomicUsize; SESSIONS],
    is_over: AtomicBool,
}

impl Storm {
    /// Counts a round and returns whether this session continues; called before each round.
    pub(crate) fn goes_on(&self, number: usize) -> bool {
        self.rounds[number].fetch_add(1, Relaxed);
        !self.is_over.load(Relaxed)
    }

    /// Waits until each session has completed a round, so that no session is struck twice at the
    /// same step.
    fn wait_done(&self) {
        let started = Instant::now();
        let before = self.rounds.each_ref().map(|one| one.load(Relaxed));
        let is_done = || {
            let mut both = self.rounds.iter().zip(before);
            both.all(|(now, before)| now.load(Relaxed) > before + 1)
        };
        while !is_done() && started.elapsed() < LIMIT {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Returns the failures that sessions report, including those that ended before the storm.
pub(crate) fn storm(
    session: impl Fn(usize, &Storm) -> Option<Vec<String>> + Sync,
    mut strike: impl FnMut(),
) -> Vec<Vec<String>> {
    let storm = Storm {
        rounds: Default::default(),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let (storm, session) = (&storm, &session);
        let end = SetOnDrop(&storm.is_over);
        let begin = |number| scope.spawn(move || session(number, storm));
        let sessions: Vec<_> = (0..SESSIONS).map(begin).collect();
        let mut rng = TestRng(11);
        for _ in 0..BLOWS {
            storm.wait_done();
            if sessions.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
            thread::sleep(Duration::from_micros(rng.below(2_000)));
            strike();
        }
        drop(end);
        let ended = sessions.into_iter().map(|one| one.join());
        let wrong = ended.flat_map(|outcome| outcome.expect("no session panics"));
        wrong.collect()
    })
}
