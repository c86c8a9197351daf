//! Groups the limits that a pool's connections count against.

use std::sync::Arc;

use super::types::PoolLimits;
use crate::load::Load;
use crate::permits::Permits;

/// One limit.
#[derive(Debug, Clone)]
pub(super) enum ConnectionLimit {
    /// Limit within the service.
    Own(Arc<Permits>),
    /// Limit of the server, which other services share.
    Server(Arc<Load>),
}

impl ConnectionLimit {
    fn permits(&self) -> &Permits {
        match self {
            ConnectionLimit::Own(permits) => permits,
            ConnectionLimit::Server(load) => &load.permits,
        }
    }

    fn is(&self, other: &ConnectionLimit) -> bool {
        std::ptr::eq(self.permits(), other.permits())
    }
}

/// All limits of a pool.
#[derive(Debug)]
pub(super) struct ConnectionLimits(Vec<ConnectionLimit>);

impl ConnectionLimits {
    /// Creates the limits of the pool, the service, the user, the database and the server, in this
    /// order.
    pub(super) fn new(
        [pool, service, user, database]: [ConnectionLimit; 4],
        server: ConnectionLimit,
    ) -> ConnectionLimits {
        ConnectionLimits(vec![pool, service, user, database, server])
    }

    /// Changes the limits, except those of the service and the server, which do not belong to the
    /// pool.
    pub(super) fn set_limits(&self, limits: &PoolLimits) {
        if let [pool, _, user, database, _] = &*self.0 {
            pool.permits().set_limit(limits.pool);
            user.permits().set_limit(limits.user);
            database.permits().set_limit(limits.database);
        }
    }

    /// Acquires a permit of each limit, or none.
    pub(super) fn try_acquire(&self) -> bool {
        let full = self.0.iter().position(|one| !one.permits().try_acquire());
        let taken = &self.0[..full.unwrap_or(0)];
        taken.iter().for_each(|one| release(one.permits()));
        full.is_none()
    }

    pub(super) fn release(&self) {
        self.0.iter().for_each(|one| release(one.permits()));
    }

    /// Returns whether one of the limits is zero.
    pub(super) fn is_any_zero(&self) -> bool {
        self.0.iter().any(|one| one.permits().limit() == 0)
    }

    /// Returns whether more permits are in use than a lowered limit allows.
    pub(super) fn are_exceeded(&self) -> bool {
        self.excess() > 0
    }

    /// Returns the largest excess over a limit.
    pub(super) fn excess(&self) -> u32 {
        let excess = |permits: &Permits| permits.in_use().saturating_sub(allowed(permits));
        let each = self.0.iter().map(|one| excess(one.permits()));
        each.max().unwrap_or(0)
    }

    /// Returns the limits that prevent one more connection.
    pub(super) fn full(&self) -> Vec<&ConnectionLimit> {
        self.0
            .iter()
            .filter(|one| one.permits().is_full())
            .collect()
    }

    /// Returns whether the limit of that server is included.
    pub(super) fn include_server(&self, load: &Arc<Load>) -> bool {
        self.has(&ConnectionLimit::Server(Arc::clone(load)))
    }

    /// Returns whether a connection less here frees a permit there.
    pub(super) fn has(&self, limit: &ConnectionLimit) -> bool {
        self.0.iter().any(|one| one.is(limit))
    }
}

/// Returns the number of permits that this process may use; "unlimited" is preserved.
fn allowed(permits: &Permits) -> u32 {
    match permits.limit() {
        crate::permits::UNLIMITED => crate::permits::UNLIMITED,
        limit => limit.saturating_sub(permits.in_use_elsewhere()),
    }
}

fn release(permits: &Permits) {
    let was_held = permits.release();
    debug_assert!(was_held, "a permit was released that was not held");
}
