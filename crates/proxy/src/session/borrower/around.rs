//! Who has stood in line for a connection for long looks whether it is better elsewhere by now.

use super::{Borrower, LOOK_AROUND_MS, Wait};
use crate::clock;
use crate::service::View;
use crate::service::database::DatabaseView;
use crate::session::placing::Wanted;
use crate::upstream::lending::Connection;

impl<C: Connection> Borrower<'_, C> {
    /// Whether it has stood in line for so long that where it goes is to be decided once more.
    pub(in crate::session) fn looks_around(&self) -> bool {
        let Some(Wait::Connection { until_ms, since_us }) = self.wait else {
            return false;
        };
        let waited_us = clock::now_us().saturating_sub(since_us);
        until_ms != u64::MAX && waited_us >= LOOK_AROUND_MS * 1_000
    }

    /// Whether it has left that line: where it is wanted by now it gets a connection at once, or
    /// the server that it waits for is not to do its work any more.
    pub(in crate::session) fn leaves_for(&mut self, wanted: Wanted, view: &View) -> bool {
        let Some(own) = &view.database else {
            return false;
        };
        let leaves = self.is_better(wanted.index(self.writer(view)), view, own);
        wanted.forgo(own);
        if leaves {
            self.leave_lines();
            self.at = None;
        }
        leaves
    }

    fn is_better(&self, there: Option<usize>, view: &View, own: &DatabaseView) -> bool {
        let Some(at) = &self.at else {
            return false;
        };
        let here = view.servers.iter().position(|one| one.id == at.server.id);
        if here == there {
            return self.is_at_former_primary(view);
        }
        let writer = self.writer(view).index;
        let may_serve = |here: usize| writer == Some(here) || own.readers.members()[here].accepting;
        let is_left = self.is_at_former_primary(view) || !here.is_some_and(may_serve);
        is_left || there.is_some_and(|there| self.has_room(view, there))
    }
}
