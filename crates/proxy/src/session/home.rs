//! Where the writes of a session go: to the primary, or, where several servers take writes beside
//! each other, to the one of them that is the session's home.

use std::sync::Arc;

use evenkeel_policy::homes::Homes;
use evenkeel_policy::load::Load;
use evenkeel_policy::pool::{Request, Tried};

use super::placing::places_of;
use crate::clock;
use crate::dice::dice;
use crate::service::View;
use crate::service::database::DatabaseView;

/// The server that takes a session's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Writer {
    /// Its place in the view; `None`: there is none now.
    pub(super) index: Option<usize>,
    /// Counts the times that the session's writes went to another one.
    pub(super) epoch: u64,
}

/// A session's home; of no matter where one server alone takes writes.
#[derive(Default)]
pub(super) struct Home {
    taken: Option<Taken>,
    /// How often it has moved: less than [`EPOCH_STEP`](crate::knowledge::EPOCH_STEP).
    moves: u32,
}

/// One session more is counted at the server as long as this lives.
struct Taken {
    server_id: u64,
    sessions: Arc<Load>,
    /// [`Homes::number`] when it was last looked whether it is crowded.
    number: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.sessions.release();
    }
}

impl Writer {
    /// The same for all sessions.
    pub(super) fn of_all(own: &DatabaseView) -> Self {
        Self {
            index: own.primary,
            epoch: own.epoch,
        }
    }
}

impl Home {
    /// Who takes the session's writes; that changes with [`Home::settle`] alone, or ends.
    pub(super) fn writer(&self, view: &View, own: &DatabaseView) -> Writer {
        match &own.homes {
            None => Writer::of_all(own),
            Some(homes) => Writer {
                index: self.index(homes, view),
                epoch: own.epoch + u64::from(self.moves),
            },
        }
    }

    fn index(&self, homes: &Homes, view: &View) -> Option<usize> {
        let index = view.place_of(self.taken.as_ref()?.server_id);
        index.filter(|index| homes.has(*index))
    }

    /// Before the session's next work, for which it has no connection: it moves if its home takes
    /// writes no more, has failed it, or has more sessions than its share.
    pub(super) fn settle(&mut self, view: &View, own: &DatabaseView, failed: &[u64]) {
        let Some(homes) = &own.homes else {
            self.taken = None;
            return;
        };
        let index = self.index(homes, view);
        if let (Some(index), Some(taken)) = (index, &mut self.taken) {
            let is_settled = taken.number == homes.number || !homes.is_crowded(index);
            if is_settled && !failed.contains(&taken.server_id) {
                taken.number = homes.number;
                return;
            }
        }
        self.move_from(index, (homes, view), failed);
    }

    /// To the one with the fewest sessions. `here`: its home, if that takes writes.
    fn move_from(&mut self, here: Option<usize>, (homes, view): (&Homes, &View), failed: &[u64]) {
        let picked = pick(homes, &places_of(failed, view));
        // All have failed it: one of them may be better by now.
        let picked = picked.or_else(|| match here {
            Some(_) => None,
            None => pick(homes, &Tried::none()),
        });
        let Some(index) = picked else {
            // Where it is, if anywhere.
            self.taken = self.taken.take().filter(|_| here.is_some());
            return;
        };
        self.moves = self.moves.saturating_add(u32::from(here != picked));
        self.taken = Some(Taken {
            server_id: view.servers[index].id,
            sessions: Arc::clone(&homes.members()[index].load),
            number: homes.number,
        });
    }

    /// Whether several servers take writes.
    pub(super) fn is_of(view: &View) -> bool {
        homes_of(view).is_some()
    }

    /// Whether several do, and one of them has not failed the session.
    pub(super) fn has_another(view: &View, failed: &[u64]) -> bool {
        homes_of(view).is_some_and(|homes| {
            let mut places = homes.places();
            places.any(|index| !failed.contains(&view.servers[index].id))
        })
    }
}

fn homes_of(view: &View) -> Option<&Homes> {
    view.database.as_ref()?.homes.as_ref()
}

/// One session more is counted there.
fn pick(homes: &Homes, failed: &Tried) -> Option<usize> {
    homes.pick(&Request {
        key: 0,
        tried: failed,
        random: dice(),
        now_us: clock::now_us(),
    })
}
