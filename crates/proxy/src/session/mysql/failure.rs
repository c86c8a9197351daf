//! Classifies the errors of servers for the decision whether a command is sent again, and records
//! those of Evenkeel's own queries.

use evenkeel_policy::route::retry::FailureKind;
use evenkeel_wire::mysql::backend::ErrorReport;

use super::error_reply::ErrorReply;
use super::from_server::ScanResult;
use super::server::Ask;
use super::{AfterDiscard, Session, Stage};

impl Session<'_> {
    /// Records the error of a query of Evenkeel.
    pub(super) fn record_error(
        &mut self,
        ask: Option<Ask>,
        report: &ErrorReport<'_>,
        scan: &mut ScanResult,
    ) {
        match &mut self.stage {
            Stage::DiscardReply(AfterDiscard::Renewed { is_clean }) => *is_clean = false,
            Stage::DiscardReply(then @ AfterDiscard::Answered { .. }) => {
                *then = AfterDiscard::Unanswered
            }
            Stage::DiscardReply(AfterDiscard::Listed(listing)) => listing.has_failed = true,
            Stage::DiscardReply(AfterDiscard::TookBack { is_whole }) => {
                *is_whole &= ask == Some(Ask::Telling)
            }
            _ => {}
        }
        match ask {
            Some(Ask::Telling) => {}
            Some(Ask::Wait) => scan.failure = Some(FailureKind::NotFresh),
            Some(Ask::Prepare) => scan.refused = Some(ErrorReply::of_report(report, "")),
            _ => {
                let why = "the server rejected a setting of this session: ";
                scan.refused = Some(ErrorReply::of_report(report, why));
            }
        }
    }
}

/// Returns whether and how an error affects retries ("Server Error Message Reference").
pub(super) fn failure_of(report: &ErrorReport<'_>) -> FailureKind {
    if report.is_read_only() {
        return FailureKind::ReadOnly;
    }
    if report.is_without_cluster() {
        return FailureKind::TurnedAway;
    }
    if report.is_unread() {
        return FailureKind::NotRead;
    }
    match report.code {
        // ER_CON_COUNT_ERROR
        1040 => FailureKind::TurnedAway,
        // ER_SERVER_SHUTDOWN and ER_CONNECTION_KILLED may interrupt a statement, and not every
        // engine rolls back its changes; ER_NORMAL_SHUTDOWN.
        1053 | 1077 | 1927 => FailureKind::Broken,
        // Missing schema, table, column, index or routine, and missing privileges for them.
        1044 | 1049 | 1054 | 1109 | 1142 | 1143 | 1146 | 1176 | 1305 | 1356 | 1370 => {
            FailureKind::NotThereYet
        }
        _ => FailureKind::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_tells_whether_it_has_run_anything() {
        let said = |code: u16, message: &'static [u8], is_unasked: bool| {
            let sqlstate = None;
            failure_of(&ErrorReport {
                code,
                sqlstate,
                message,
                is_unasked,
            })
        };
        let of = |code, message| said(code, message, false);
        assert_eq!(said(4031, b"disconnected", true), FailureKind::NotRead);
        assert_eq!(of(4031, b"Referenced trigger"), FailureKind::Error);
        assert_eq!(of(1053, b"Server shutdown"), FailureKind::Broken);
        assert_eq!(of(1040, b"Too many connections"), FailureKind::TurnedAway);
        assert_eq!(of(1047, b"WSREP has not yet"), FailureKind::TurnedAway);
        assert_eq!(of(1290, b"--read-only option"), FailureKind::ReadOnly);
        assert_eq!(
            of(1146, b"Table 'a.t' doesn't exist"),
            FailureKind::NotThereYet
        );
        assert_eq!(of(1062, b"Duplicate entry"), FailureKind::Error);
    }
}
