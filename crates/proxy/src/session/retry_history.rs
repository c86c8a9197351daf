//! Records the earlier attempts of a request, for the decision whether it is sent again.

use evenkeel_policy::route::retry::{
    Atomicity, Attempt, Destination, FailedServer, Progress, RequestEffect, Resend,
};
use smallvec::SmallVec;

use super::acquirer::Acquirer;
use crate::upstream::worker_pool::PoolableConnection;

/// Earlier attempts of a request.
#[derive(Default)]
pub(super) struct RetryHistory {
    /// Number of counted retries.
    pub(super) count: u32,
    /// Ids of the servers that have failed the request.
    pub(super) tried: SmallVec<[u64; 2]>,
    /// Servers that the request may be placed on.
    pub(super) destination: Destination,
}

impl RetryHistory {
    /// Records a retry after an attempt at this place.
    pub(super) fn note<C: PoolableConnection>(
        &mut self,
        resend: Resend,
        acquirer: &Acquirer<'_, C>,
    ) {
        self.count += u32::from(resend.is_counted);
        if let Some(at) = &acquirer.at
            && resend.target.avoids_failed_server()
        {
            self.tried.push(at.server.id);
        }
        self.destination = self.destination.max(resend.target.destination());
    }

    /// Returns the facts about another attempt, as far as they follow from the earlier ones and the
    /// server. The other values are the worst ones. `primary`: kind of the server if it is no
    /// replica.
    pub(super) fn attempt<C: PoolableConnection>(
        &self,
        acquirer: &Acquirer<'_, C>,
        primary: FailedServer,
    ) -> Attempt {
        let at = acquirer.at.as_ref();
        Attempt {
            server: match acquirer.is_at_replica() {
                true => FailedServer::Replica,
                false => primary,
            },
            // Without a server, this is assumed.
            was_tried: at.is_none_or(|at| self.tried.contains(&at.server.id)),
            destination: self.destination,
            effect: RequestEffect::Writes,
            atomicity: Atomicity::Partial,
            has_done: true,
            is_held: true,
            is_kept: false,
            progress: Progress::Answered,
            retries: self.count,
        }
    }
}
