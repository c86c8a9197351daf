//! Queues the clients that wait for a connection of one pool, separately for each worker.

use std::collections::VecDeque;

use super::types::WaitTicket;

/// Waiting client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) since_ms: u64,
}

/// Queues of one pool by worker, each in the order of arrival.
#[derive(Debug)]
pub(super) struct Queue {
    queues: Vec<VecDeque<Waiter>>,
    length: usize,
}

impl Queue {
    pub(super) fn new(workers: usize) -> Queue {
        Queue {
            queues: vec![VecDeque::new(); workers],
            length: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn len_at(&self, worker: usize) -> usize {
        self.queues[worker].len()
    }

    pub(super) fn push(&mut self, worker: usize, waiter: Waiter) {
        self.queues[worker].push_back(waiter);
        self.length += 1;
    }

    /// Returns the client that has waited longest of all.
    pub(super) fn oldest(&self) -> Option<(usize, Waiter)> {
        let fronts = self.queues.iter().enumerate();
        let fronts = fronts.filter_map(|(worker, queue)| Some((worker, *queue.front()?)));
        fronts.min_by_key(|(_, waiter)| waiter.number)
    }

    /// Returns the queue to serve when `worker` has a connection. That is its own queue, unless the
    /// oldest client of all has waited longer than its own first by `delay_ms` plus half of the
    /// latter's wait. If all wait long, one worker's clients soon wait some milliseconds longer
    /// than another's, and connections would move back and forth more and more.
    pub(super) fn next_worker(&self, worker: usize, delay_ms: u64, now_ms: u64) -> Option<usize> {
        let (elsewhere, oldest) = self.oldest()?;
        let comes_first = |own: &Waiter| {
            let half_ms = now_ms.saturating_sub(own.since_ms) / 2;
            own.since_ms < oldest.since_ms + delay_ms + half_ms
        };
        let is_own = self.queues[worker].front().is_some_and(comes_first);
        Some(if is_own { worker } else { elsewhere })
    }

    /// Removes the first client of a queue.
    pub(super) fn pop(&mut self, worker: usize) -> Option<Waiter> {
        let waiter = self.queues[worker].pop_front()?;
        self.length -= 1;
        Some(waiter)
    }

    /// Removes a client that stopped waiting; false if no client has that number.
    pub(super) fn remove(&mut self, ticket: WaitTicket) -> bool {
        let queue = &mut self.queues[ticket.worker];
        let Ok(index) = queue.binary_search_by_key(&ticket.number, |waiter| waiter.number) else {
            return false;
        };
        queue.remove(index);
        self.length -= 1;
        true
    }
}
