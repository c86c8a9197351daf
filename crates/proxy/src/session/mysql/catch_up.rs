//! What a server is told to wait for before a read, and whether it says that it is there.

use evenkeel_policy::causality::Position;
use evenkeel_wire::mysql::backend;

use super::Session;
use super::query_text::mariadb_positions;
use super::tracked::last_row;
use crate::session::placement::CatchUpTarget;

impl Session<'_> {
    /// The server has what the session must see.
    pub(super) fn caught_up(&mut self) {
        self.unit.patience = None;
        if self.borrower.is_at_primary() {
            // As if it had written there: that is of this primary's time, and nobody waits again.
            self.wrote();
        }
    }

    /// Whether the row that a wait gave says that all is there.
    pub(super) fn is_caught_up(&self) -> bool {
        let row = last_row(&self.unit.word);
        let said = self.unit.wait.as_ref().map(|awaited| said(awaited, row));
        if said == Some(CatchUpResult::Untrue)
            && let Some(at) = &self.borrower.at
        {
            let server = &at.server.name;
            tracing::debug!(%server, "position was reached with transactions of another server; \
                                      the read runs elsewhere");
        }
        said == Some(CatchUpResult::There)
    }
}

/// Waits on a server until it has what the session must see.
///
/// MariaDB's answer is not taken at its word: MASTER_GTID_WAIT compares numbers, and not which
/// server counted them. A primary that gives up logs a DROP for the temporary tables of those it
/// cuts off; a replica that still follows it has then come further than its successor, which goes
/// on with the same numbers.
pub(super) fn text(is_mariadb: bool, awaited: &CatchUpTarget, wait_ms: u64) -> String {
    let (whole, thousandths) = (wait_ms / 1_000, wait_ms % 1_000);
    let limit = format!("{whole}.{thousandths:03}");
    match awaited {
        CatchUpTarget::Everything => "SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 0".to_owned(),
        CatchUpTarget::Position(Position::Gtids(gtids)) if is_mariadb => {
            format!("SELECT MASTER_GTID_WAIT('{gtids}', {limit}), @@global.gtid_slave_pos")
        }
        CatchUpTarget::Position(Position::Gtids(gtids)) => {
            format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {limit})")
        }
        // Another database's: it is never reached.
        CatchUpTarget::Position(_) => "SELECT 1".to_owned(),
    }
}

/// What a row says that answers a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CatchUpResult {
    There,
    /// Its time was over first.
    Late,
    /// That all is there, which it is not.
    Untrue,
}

fn said(awaited: &CatchUpTarget, row: &[u8]) -> CatchUpResult {
    let mut values = backend::values(row);
    if values.next() != Some(Some(b"0")) {
        return CatchUpResult::Late;
    }
    let (CatchUpTarget::Position(Position::Gtids(gtids)), Some(applied)) = (awaited, values.next())
    else {
        return CatchUpResult::There;
    };
    let applied = applied.and_then(mariadb_positions);
    match applied.is_some_and(|applied| gtids.is_within(&applied)) {
        true => CatchUpResult::There,
        false => CatchUpResult::Untrue,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_policy::cluster::Gtids;

    use super::*;

    fn awaited() -> CatchUpTarget {
        let gtids = Gtids::mariadb([(0, 1, 90), (0, 2, 100)]);
        CatchUpTarget::Position(Position::Gtids(gtids))
    }

    #[test]
    fn a_server_of_mariadb_is_asked_where_it_is_behind_the_wait() {
        assert_eq!(
            text(true, &awaited(), 50),
            "SELECT MASTER_GTID_WAIT('0-1-90,0-2-100', 0.050), @@global.gtid_slave_pos"
        );
    }

    #[test]
    fn the_end_of_a_wait_counts_only_where_the_position_is_reached() {
        let says = |row: &[u8]| said(&awaited(), row);
        assert_eq!(says(b"\x010\x070-2-100"), CatchUpResult::There);
        assert_eq!(says(b"\x010\x070-2-101"), CatchUpResult::There);
        assert_eq!(
            says(b"\x010\x070-1-101"),
            CatchUpResult::Untrue,
            "a former primary's"
        );
        assert_eq!(says(b"\x010\x060-2-99"), CatchUpResult::Untrue);
        assert_eq!(
            says(b"\x010\x00"),
            CatchUpResult::Untrue,
            "it has applied nothing"
        );
        assert_eq!(says(b"\x010\xfb"), CatchUpResult::Untrue);
        assert_eq!(
            says(b"\x010\x03..."),
            CatchUpResult::Untrue,
            "that is no position"
        );
        assert_eq!(says(b"\x02-1\x070-2-100"), CatchUpResult::Late);
        assert_eq!(says(b"\xfb\x070-2-100"), CatchUpResult::Late);
    }

    #[test]
    fn who_says_nothing_more_is_believed() {
        assert_eq!(said(&awaited(), b"\x010"), CatchUpResult::There, "MySQL");
        assert_eq!(
            said(&CatchUpTarget::Everything, b"\x010"),
            CatchUpResult::There
        );
        assert_eq!(
            said(&CatchUpTarget::Everything, b"\x011"),
            CatchUpResult::Late
        );
        assert_eq!(said(&awaited(), b""), CatchUpResult::Late);
    }
}
