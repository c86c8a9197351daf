//! What a worker's part of a service looks like from outside: its idle connections, and a count of
//! what its clients do.

use std::cell::RefCell;
use std::sync::Arc;

use evenkeel_policy::pins::Pins;

use super::Lending;
use crate::clock;
use crate::engine::describe::{Doing, IdleInfo};
use crate::service::figures::Census;

/// The count under way.
#[derive(Default)]
pub(super) struct Counting(RefCell<Tally>);

#[derive(Default)]
struct Tally {
    doing: [u64; Census::DOINGS],
    pins: [u64; Census::PINS],
}

impl Lending {
    /// Tells of the connections that nobody uses now.
    pub(crate) fn describe_idle(&self, idle: &mut Vec<IdleInfo>) {
        let now_ms = clock::now_ms();
        for (_, connection) in self.connections.borrow().iter() {
            // An empty place: it is lent, and its session tells of it.
            let Some(connection) = connection else {
                continue;
            };
            let who = &connection.pooled.who;
            idle.push(IdleInfo {
                user: who.user.clone(),
                database: who.database.clone(),
                server: Arc::clone(&connection.pooled.server.name),
                process: connection.cancels.process(),
                age_ms: now_ms.saturating_sub(connection.since_ms),
            });
        }
    }

    pub(crate) fn begin_census(&self) {
        self.counting.0.replace(Tally::default());
    }

    /// One client: what it does, and what binds it.
    pub(crate) fn count(&self, doing: Doing, pins: Pins) {
        let mut tally = self.counting.0.borrow_mut();
        tally.doing[doing as usize] += 1;
        for pin in pins.iter() {
            tally.pins[pin as usize] += 1;
        }
    }

    pub(crate) fn publish_census(&self) {
        let (Some(shared), Some(worker)) = (&self.service.postgres, self.worker.upgrade()) else {
            return;
        };
        let tally = self.counting.0.borrow();
        shared.figures()[worker.index]
            .census
            .set(&tally.doing, &tally.pins);
    }
}
