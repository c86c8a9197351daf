//! Records the earlier attempts of a request, for the decision whether it is sent again.

use evenkeel_policy::route::retry::{Destination, Resend};
use smallvec::SmallVec;

use super::placement::Placement;

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
    pub(super) fn note(&mut self, resend: Resend, at: Option<&Placement>) {
        self.count += u32::from(resend.is_counted);
        if let Some(at) = at
            && resend.target.avoids_failed_server()
        {
            self.tried.push(at.server.id);
        }
        self.destination = self.destination.max(resend.target.destination());
    }

    /// Returns whether the server at this place has failed the request before. Without a place,
    /// this is assumed.
    pub(super) fn has_tried(&self, at: Option<&Placement>) -> bool {
        at.is_none_or(|at| self.tried.contains(&at.server.id))
    }
}
