//! Records a session's writes before its client receives the reply, for reads that must see them.

use evenkeel_engine::clock;
use evenkeel_wire::postgres::TransactionStatus;

use evenkeel_sql::session_state::analysis::CatalogChange;

use super::Session;
use super::scan_result::ScanResult;

impl Session<'_> {
    /// Records a commit whose session is already in the next transaction (COMMIT AND CHAIN).
    pub(super) fn note_commit(&mut self, scan: &ScanResult) {
        let server = self.core.server.as_deref();
        let status = server.map(|server| server.conversation.status());
        let is_noted = scan.is_ready && status == Some(TransactionStatus::Idle);
        let may_write = self.active.may_write() && self.core.acquirer.is_at_primary();
        if scan.has_committed && !is_noted && may_write {
            self.wrote();
        }
    }

    /// Records a write. This must precede the reply to the client, whose next read must see the
    /// write.
    pub(super) fn wrote(&mut self) {
        let catalog_change = std::mem::take(&mut self.catalog_change);
        if catalog_change > CatalogChange::None {
            self.changed_catalog_us = clock::now_us();
            self.account.catalog_changed();
            if std::mem::take(&mut self.changes_plans) {
                self.account.plans_changed();
            }
            if catalog_change == CatalogChange::Functions {
                self.account.functions_changed(self.changed_catalog_us);
            }
        }
        let view = self.core.permit.service().snapshot();
        let reads_are_split = view.database().is_some_and(|database| database.split.reads);
        let Some(at) = self.core.acquirer.at.as_ref().filter(|_| reads_are_split) else {
            return;
        };
        let now_us = clock::now_us();
        self.token.wrote(now_us, at.epoch);
        self.core
            .service
            .server_info
            .record_write(self.core.worker.index(), now_us);
    }
}
