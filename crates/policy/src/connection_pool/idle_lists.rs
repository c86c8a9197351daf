//! Stores the idle connections of one worker by pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shared_pools::Pool;
use super::types::Checkout;

/// Idle connections of all pools. Every change is published to the pool's counter of this worker.
#[derive(Debug)]
pub(super) struct IdleLists {
    worker: usize,
    by_pool: BTreeMap<u64, IdleList>,
}

/// Idle connections of one pool, the longest idle first.
#[derive(Debug)]
pub(super) struct IdleList {
    pub(super) pool: Arc<Pool>,
    idle: Vec<IdleConnection>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct IdleConnection {
    connection: u32,
    pub(super) since_ms: u64,
    pub(super) expires_ms: u64,
}

impl IdleLists {
    pub(super) fn new(worker: usize) -> IdleLists {
        IdleLists {
            worker,
            by_pool: BTreeMap::new(),
        }
    }

    pub(super) fn get(&self, pool: u64) -> Option<&IdleList> {
        self.by_pool.get(&pool)
    }

    pub(super) fn len(&self, pool: u64) -> usize {
        self.get(pool).map_or(0, |list| list.idle.len())
    }

    pub(super) fn add(&mut self, pool: &Arc<Pool>) {
        self.by_pool.entry(pool.id).or_insert_with(|| IdleList {
            pool: Arc::clone(pool),
            idle: Vec::new(),
        });
    }

    pub(super) fn record_release(&self, pool: u64, now_ms: u64) {
        if let Some(list) = self.get(pool) {
            list.pool.record_release(self.worker, now_ms);
        }
    }

    /// Adds an idle connection; its list must exist.
    pub(super) fn put(&mut self, checkout: Checkout, now_ms: u64) {
        let list = self.by_pool.get_mut(&checkout.pool);
        let list = list.expect("the list must exist");
        list.idle.push(IdleConnection {
            connection: checkout.connection,
            since_ms: now_ms,
            expires_ms: checkout.expires_ms,
        });
        list.publish(self.worker);
    }

    /// Removes the connection that was used last: it is the most likely to be warm, and the others
    /// can reach the idle limit.
    pub(super) fn take_newest(&mut self, pool: u64) -> Option<Checkout> {
        self.take(pool, Vec::pop)
    }

    pub(super) fn take_oldest(&mut self, pool: u64) -> Option<Checkout> {
        self.take(pool, |idle| (!idle.is_empty()).then(|| idle.remove(0)))
    }

    pub(super) fn take_connection(&mut self, pool: u64, connection: u32) -> Option<Checkout> {
        self.take(pool, |idle| {
            let index = idle.iter().position(|one| one.connection == connection)?;
            Some(idle.remove(index))
        })
    }

    fn take(
        &mut self,
        pool: u64,
        which: impl FnOnce(&mut Vec<IdleConnection>) -> Option<IdleConnection>,
    ) -> Option<Checkout> {
        let list = self.by_pool.get_mut(&pool)?;
        let idle = which(&mut list.idle)?;
        list.publish(self.worker);
        Some(list.checkout(idle))
    }

    /// Removes connections for which there is a `reason`, the oldest first, and empty lists.
    pub(super) fn remove_where<R>(
        &mut self,
        mut reason: impl FnMut(&Pool, &IdleConnection) -> Option<R>,
    ) -> Vec<(Checkout, R)> {
        let mut taken = Vec::new();
        for list in self.by_pool.values_mut() {
            for idle in std::mem::take(&mut list.idle) {
                match reason(&list.pool, &idle) {
                    None => list.idle.push(idle),
                    Some(reason) => {
                        taken.push((list.checkout(idle), reason));
                        // The next call of `reason` counts the remaining ones.
                        list.pool.decrement_idle(self.worker);
                    }
                }
            }
        }
        self.by_pool.retain(|_, list| !list.idle.is_empty());
        taken
    }
}

impl IdleList {
    fn publish(&self, worker: usize) {
        self.pool.set_idle(worker, self.idle.len());
    }

    fn checkout(&self, idle: IdleConnection) -> Checkout {
        Checkout {
            connection: idle.connection,
            pool: self.pool.id,
            expires_ms: idle.expires_ms,
        }
    }
}
