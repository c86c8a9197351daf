//! Who a session is towards the servers: a user in a database with a credential, and the pools that
//! belong to it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::Connection;
use crate::server::Server;
use crate::service::database::{DatabaseService, DatabaseView};
use crate::upstream::lender::{Lender, Pooled, Who};

/// What the sessions of one worker share that are the same user in the same database.
pub(crate) struct Account<C: Connection> {
    pub(crate) who: Arc<Who>,
    /// What else is known, as the protocol has it.
    pub(crate) known: C::Known,
    lender: Arc<Lender>,
    pooled: RefCell<Vec<Arc<Pooled>>>,
}

impl<C: Connection> Account<C> {
    pub(super) fn new(who: Who, service: &DatabaseService) -> Rc<Self> {
        Rc::new(Self {
            known: C::known(&who, service),
            who: Arc::new(who),
            lender: Arc::clone(&service.lender),
            pooled: RefCell::default(),
        })
    }

    /// The pool at a server.
    pub(crate) fn pooled(&self, server: &Arc<Server>, view: &DatabaseView) -> Arc<Pooled> {
        let mut pooled = self.pooled.borrow_mut();
        let known = pooled.iter().position(|one| one.server.id == server.id);
        if let Some(index) = known {
            if !pooled[index].pool.is_outdated() {
                return Arc::clone(&pooled[index]);
            }
            pooled.swap_remove(index);
        }
        let new = self.lender.pool_for(&self.who, server, view);
        pooled.push(Arc::clone(&new));
        new
    }

    /// Nobody is lent a connection of its pools any more: what is free closes, what is not will.
    pub(crate) fn retire(&self) {
        for pooled in &*self.pooled.borrow() {
            self.lender.books.outdate(&pooled.pool);
        }
    }
}
