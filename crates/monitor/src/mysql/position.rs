//! Queries a MySQL or MariaDB server for its executed transactions.

use std::time::Duration;

use evenkeel_policy::causality::{Position, WaitSupport};
use evenkeel_policy::cluster::Gtids;
use mysql_async::Conn;

use super::{Link, Monitor, QueryError, dialect, galera, replication, rows};
use crate::kept_line::within;
use crate::persistent::RoleQuery;
use crate::position::PositionSource;
use crate::probe::{
    Progress, Target,
    mysql::{catch_panic, malformed},
};
use crate::row::{Row, UnexpectedValue, only};
use crate::{Clock, ServerPosition, WatchError};

const STEP: &str = "querying its replication position";

impl PositionSource for Monitor {
    const STEP: &'static str = STEP;
    type Link = Link;

    async fn connect(&self, target: &Target, progress: &Progress) -> Result<Link, WatchError> {
        RoleQuery::connect(self, target, progress).await
    }

    fn is_usable(_: &Link) -> bool {
        true
    }

    async fn query(
        &self,
        link: Link,
        now_us: Clock,
        target: &Target,
        progress: &Progress,
    ) -> Result<(ServerPosition, Link), WatchError> {
        let (queried_us, question) = (now_us(), link.dialect.position());
        let (facts, link) = self.answer(link, question, target, progress).await?;
        Ok((read(&facts, queried_us)?, link))
    }
}

impl Monitor {
    /// Waits until the server has applied everything acknowledged before, where that is uncertain.
    pub(crate) async fn catch_up(
        &self,
        target: &Target,
        timeout: Duration,
    ) -> Result<(), WatchError> {
        let progress = Progress::new(timeout);
        let asking = async {
            let link = RoleQuery::connect(self, target, &progress).await?;
            let Some(question) = link.dialect.catch_up() else {
                return Ok(());
            };
            self.answer(link, question, target, &progress)
                .await
                .map(drop)
        };
        within(timeout, &progress, asking).await
    }

    async fn answer(
        &self,
        mut link: Link,
        question: &'static str,
        target: &Target,
        progress: &Progress,
    ) -> Result<(Row, Link), WatchError> {
        progress.logged_in(STEP);
        let asking = catch_panic(async move {
            let answer = facts(&mut link.connection, question).await;
            (link, answer)
        });
        match asking.await {
            Some((link, Ok(facts))) => Ok((facts, link)),
            Some((link, Err(error))) => {
                let dialect = Some(&link.dialect);
                let classified = self.classify(error, dialect, target, progress);
                Err(classified.await)
            }
            None => Err(malformed(target).await.into()),
        }
    }
}

async fn facts(connection: &mut Conn, question: &str) -> Result<Row, QueryError> {
    Ok(only(rows(connection, question).await?)?)
}

fn read(facts: &Row, queried_us: u64) -> Result<ServerPosition, UnexpectedValue> {
    let takes_writes = !facts.flag(&[dialect::READ_ONLY])?;
    let (written, applied) = match facts.has(galera::SEEN) {
        true => {
            let committed = galera::committed(facts)?;
            (takes_writes.then(|| committed.clone()), committed)
        }
        false => {
            let writable = takes_writes && names_all(facts)?;
            let written = writable.then(|| replication::executed(facts)).transpose()?;
            (written, replication::visible(facts)?)
        }
    };
    // A server without GTIDs reports no position: every server would have reached an empty one.
    let position = |gtids: Gtids| (!gtids.is_empty()).then_some(Position::Gtids(gtids));
    Ok(ServerPosition {
        written: written.and_then(position),
        applied: position(applied),
        queried_us,
        wait: WaitSupport::Position,
    })
}

/// Returns whether every transaction written there gets a GTID that its replicas receive.
fn names_all(facts: &Row) -> Result<bool, UnexpectedValue> {
    match facts.has(dialect::GTID_MODE) {
        true => Ok(facts.text(&[dialect::GTID_MODE])?.starts_with("ON")),
        false => facts.flag(&["log_bin"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    fn place(read_only: &str) -> ServerPosition {
        read(&mariadb(read_only, "1"), 5).unwrap()
    }

    fn mariadb(read_only: &str, log_bin: &str) -> Row {
        row(&[
            ("read_only", Some(read_only)),
            ("binlog_state", Some("0-1-9")),
            ("slave_pos", Some("0-1-8")),
            ("current_pos", Some("0-1-9")),
            ("log_bin", Some(log_bin)),
        ])
    }

    #[test]
    fn what_is_written_without_gtids_is_not_told() {
        assert_eq!(read(&mariadb("0", "0"), 5).unwrap().written, None);
        let mysql = |mode, executed| {
            let facts = [
                ("read_only", Some("0")),
                ("executed", Some(executed)),
                ("gtid_mode", Some(mode)),
            ];
            read(&row(&facts), 5).unwrap()
        };
        let executed = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:1-5";
        assert!(mysql("ON", executed).written.is_some());
        assert!(mysql("ON_PERMISSIVE", executed).written.is_some());
        assert_eq!(mysql("OFF_PERMISSIVE", executed).written, None);
        let nothing = mysql("ON", "");
        assert_eq!((nothing.written, nothing.applied), (None, None));
    }

    #[test]
    fn only_one_that_takes_writes_tells_what_was_written() {
        let gtids = |at| Some(Position::Gtids(Gtids::mariadb([(0, 1, at)])));
        let primary = place("0").written;
        assert!(primary.is_some_and(|at| gtids(9).unwrap().is_reached_by(&at)));
        let replica = place("1");
        assert_eq!((replica.written, replica.queried_us), (None, 5));
        let applied = replica.applied.unwrap();
        assert!(gtids(8).unwrap().is_reached_by(&applied));
        assert!(
            !gtids(9).unwrap().is_reached_by(&applied),
            "logged, not applied"
        );
    }

    #[test]
    fn a_galera_node_has_all_of_its_cluster_up_to_what_it_has_committed() {
        let seen = |gtid: &str| {
            let facts = row(&[("read_only", Some("0")), ("seen_gtid", Some(gtid))]);
            read(&facts, 5)
        };
        let cluster = "bd0b172a-e527-11f1-b902-aa2c679c480e";
        let at = |number| seen(&format!("{cluster}:{number}")).unwrap();
        assert!(
            at(9)
                .written
                .unwrap()
                .is_reached_by(&at(9).applied.unwrap())
        );
        assert!(
            !at(9)
                .written
                .unwrap()
                .is_reached_by(&at(8).applied.unwrap())
        );
        let none = seen("00000000-0000-0000-0000-000000000000:-1");
        assert!(none.is_err(), "it is in no cluster");
    }
}
