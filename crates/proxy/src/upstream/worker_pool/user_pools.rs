//! Holds the pools of one user in one database with one credential.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::PoolableConnection;
use crate::server::Server;
use crate::upstream::pool_registry::{ConnectionLimits, PoolHandle, PoolRegistry, PoolUser};

/// State shared by one worker's sessions of the same user in the same database.
pub(crate) struct UserPools<C: PoolableConnection> {
    pub(crate) pool_user: Arc<PoolUser>,
    /// Protocol-specific state.
    pub(crate) known: C::Known,
    registry: Arc<PoolRegistry>,
    pool_handles: RefCell<Vec<Arc<PoolHandle>>>,
}

impl<C: PoolableConnection> UserPools<C> {
    pub(super) fn new(
        pool_user: PoolUser,
        known: C::Known,
        registry: &Arc<PoolRegistry>,
    ) -> Rc<Self> {
        Rc::new(Self {
            known,
            pool_user: Arc::new(pool_user),
            registry: Arc::clone(registry),
            pool_handles: RefCell::default(),
        })
    }

    /// Returns the pool at a server.
    pub(crate) fn pool_handle(
        &self,
        server: &Arc<Server>,
        limits: &ConnectionLimits,
    ) -> Arc<PoolHandle> {
        let mut pool_handles = self.pool_handles.borrow_mut();
        let known = pool_handles
            .iter()
            .position(|one| one.server.id == server.id);
        if let Some(index) = known {
            if !pool_handles[index].pool.is_retired() {
                return Arc::clone(&pool_handles[index]);
            }
            pool_handles.swap_remove(index);
        }
        let new = self.registry.pool_for(&self.pool_user, server, limits);
        pool_handles.push(Arc::clone(&new));
        new
    }

    /// Retires its pools: their free connections close immediately, the others when they are
    /// released.
    pub(crate) fn retire(&self) {
        for pool_handle in &*self.pool_handles.borrow() {
            self.registry.pools.retire(&pool_handle.pool);
        }
    }
}
