//! Makes a server wait before a read until it has applied the required writes, and checks the
//! result.

use evenkeel_policy::causality::Position;
use evenkeel_wire::mysql::backend;

use super::Session;
use super::query_text::mariadb_positions;
use super::tracked::last_row;
use crate::session::placement::CatchUpTarget;

impl Session<'_> {
    /// Records that the server has applied the writes that the session must see.
    pub(super) fn caught_up(&mut self) {
        self.active.wait_timer = None;
        if self.core.acquirer.is_at_primary() {
            // Counted as a write on the primary, so that the new position belongs to this primary's
            // epoch and no session waits for it again.
            self.wrote();
        }
    }

    /// Returns whether the result row of the wait reports that the position was reached.
    pub(super) fn is_caught_up(&self) -> bool {
        let row = last_row(&self.active.word);
        let result = self
            .active
            .wait
            .as_ref()
            .map(|awaited| read_result(awaited, row));
        if result == Some(CatchUpResult::Untrue)
            && let Some(at) = &self.core.acquirer.at
        {
            let server = &at.server.name;
            tracing::debug!(%server, "position was reached with transactions of another server; \
                                      the read runs elsewhere");
        }
        result == Some(CatchUpResult::There)
    }
}

/// Returns the statement that waits until a server has applied the writes that the session must
/// see.
///
/// MariaDB's result needs verification: MASTER_GTID_WAIT compares sequence numbers, but not server
/// ids. A primary that is demoted logs a DROP for the temporary tables of terminated sessions. A
/// replica that still follows it is then ahead of its successor, which assigns the same numbers.
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
        // A position of another database type is never reached.
        CatchUpTarget::Position(_) => "SELECT 1".to_owned(),
    }
}

/// Result of a wait for a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CatchUpResult {
    There,
    /// The wait timed out.
    Late,
    /// The server reported the position as reached, which is wrong.
    Untrue,
}

fn read_result(awaited: &CatchUpTarget, row: &[u8]) -> CatchUpResult {
    let mut values = backend::values(row);
    if values.next() != Some(Some(b"0")) {
        return CatchUpResult::Late;
    }
    let (CatchUpTarget::Position(Position::Gtids(gtids)), Some(applied)) = (awaited, values.next())
    else {
        return CatchUpResult::There;
    };
    let applied = applied.and_then(mariadb_positions);
    match applied.is_some_and(|applied| gtids.is_reached_by(&applied)) {
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
        let result = |row: &[u8]| read_result(&awaited(), row);
        assert_eq!(result(b"\x010\x070-2-100"), CatchUpResult::There);
        assert_eq!(result(b"\x010\x070-2-101"), CatchUpResult::There);
        assert_eq!(
            result(b"\x010\x070-1-101"),
            CatchUpResult::Untrue,
            "a former primary's"
        );
        assert_eq!(result(b"\x010\x060-2-99"), CatchUpResult::Untrue);
        assert_eq!(
            result(b"\x010\x00"),
            CatchUpResult::Untrue,
            "it has applied nothing"
        );
        assert_eq!(result(b"\x010\xfb"), CatchUpResult::Untrue);
        assert_eq!(
            result(b"\x010\x03..."),
            CatchUpResult::Untrue,
            "that is no position"
        );
        assert_eq!(result(b"\x02-1\x070-2-100"), CatchUpResult::Late);
        assert_eq!(result(b"\xfb\x070-2-100"), CatchUpResult::Late);
    }

    #[test]
    fn who_says_nothing_more_is_believed() {
        assert_eq!(
            read_result(&awaited(), b"\x010"),
            CatchUpResult::There,
            "MySQL"
        );
        assert_eq!(
            read_result(&CatchUpTarget::Everything, b"\x010"),
            CatchUpResult::There
        );
        assert_eq!(
            read_result(&CatchUpTarget::Everything, b"\x011"),
            CatchUpResult::Late
        );
        assert_eq!(read_result(&awaited(), b""), CatchUpResult::Late);
    }
}
