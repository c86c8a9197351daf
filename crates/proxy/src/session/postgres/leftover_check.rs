//! Checks which state a client's unverified statements have left on its server connection that
//! their analysis did not show. The server is queried before the connection is assigned to another
//! client.

use std::rc::Rc;
use std::slice;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::statement_verifier::{Finding, ON_TRIAL_MAX, VerificationStatus};
use evenkeel_wire::postgres::conversation::RequestToken;
use evenkeel_wire::postgres::server_scanner::Event;
use tracing::warn;

use super::error_reply::ErrorReply;
use super::server::ServerConnection;
use super::user_state::Account;
use super::{ExitReason, Session, Stage};
use crate::service::Service;
use crate::worker::Worker;
use evenkeel_sql::session_state::PinSource;
use evenkeel_sql::session_state::settings::leftover_query::{self, Leftover};

/// SQLSTATE if the user may not query the state.
const INSUFFICIENT_PRIVILEGE: [u8; 5] = *b"42501";

/// Statements that a client has executed on its current connection.
#[derive(Default)]
pub(super) struct Trial {
    /// Digests of unverified statements.
    digests: Vec<u64>,
    /// True if trusted statements were executed.
    trusted_ran: bool,
    /// True if unanalyzed statements were executed, which may have left any state found.
    unread_ran: bool,
}

impl Trial {
    /// Returns whether no statement was executed.
    fn is_empty(&self) -> bool {
        self.digests.is_empty() && !self.trusted_ran && !self.unread_ran
    }
}

impl Session<'_> {
    /// Records the execution of a statement by its digest; zero: it was not analyzed, and pins
    /// already.
    pub(super) fn runs(&mut self, digest: u64) {
        if digest == 0 {
            self.trial.unread_ran = true;
            return;
        }
        let catalog = self.account.catalog_version();
        let verdict = self.account.known.history.trials().status(digest, catalog);
        let digests = &mut self.trial.digests;
        match verdict {
            VerificationStatus::Trusted => self.trial.trusted_ran = true,
            _ if digests.contains(&digest) => {}
            VerificationStatus::OnTrial if digests.len() < ON_TRIAL_MAX => digests.push(digest),
            VerificationStatus::OnTrial => self.trial.unread_ran = true,
            // An earlier message may yet release what it leaves: then the server is queried.
            VerificationStatus::Leaves(_) => digests.push(digest),
        }
        if let VerificationStatus::Leaves(left) = verdict
            && !left.except(self.state.pins).is_empty()
        {
            self.source = Some(PinSource::named(self.shared.statement_of(digest), ""));
            self.state.pins = self.state.pins.and(left);
            self.pins_changed();
        }
    }

    /// Queries the server for leftover state before the connection is assigned to another client,
    /// if statements are unverified. Returns whether the query was sent; its result decides what
    /// follows.
    pub(super) fn starts_leftover_check(&mut self) -> bool {
        let may_ask = self.may_ask_what_is_left();
        let Some(server) = self.server.as_mut().filter(|_| may_ask) else {
            return false;
        };
        let mut text = Vec::new();
        leftover_query::question(server.settings.settings(), &mut text);
        let mut out = self.worker.take_spare();
        if !server.query(&text, RequestToken::default(), &mut out) {
            return false;
        }
        // If this fails, the next receive reports it.
        let _ = server.core.stream.send_own(self.worker, out);
        self.refused_setting = ([0; 5], String::new());
        self.stage = Stage::Asking(leftover_query::Rows::default());
        true
    }

    /// Returns whether the leftover check is in progress; the client has its reply.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    /// Adds row bytes to the result of the leftover check.
    pub(super) fn hear_rows(&mut self, bytes: &[u8]) {
        if let Stage::Asking(rows) = &mut self.stage {
            rows.add(bytes);
        }
    }

    /// Processes the beginning or the end of the leftover check's result.
    pub(super) fn hear_answer(&mut self, server: &ServerConnection, event: &Event<'_>) {
        match (&mut self.stage, event) {
            (Stage::Asking(rows), Event::RowDescription) => {
                rows.begin(server.boundaries.remainder());
            }
            (Stage::Asking(rows), Event::CommandComplete(tag)) => {
                rows.end(tag.rows().unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Handles the result of the leftover check.
    pub(super) fn finish_leftover_check(&mut self) -> Result<(), ExitReason> {
        let Stage::Asking(rows) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(());
        };
        let trial = std::mem::take(&mut self.trial);
        let (sqlstate, text) = std::mem::take(&mut self.refused_setting);
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        if sqlstate != [0; 5] {
            let acts_as = server.acts_as();
            server.is_checked = false;
            let is_blind = !acts_as && self.account.is_blind(sqlstate, &text, &trial);
            return self.release_server(match is_blind {
                true => Condition::Clean,
                false => Condition::Unclean,
            });
        }
        let left = rows.read();
        server.checked(&trial, &left, &self.account, self.permit.service());
        if !left.pins.is_empty() {
            let statements = statements(self.permit.service(), &trial.digests);
            self.source = Some(PinSource::named(statements, left.names()));
        }
        self.state.pins = self.state.pins.and(left.pins);
        self.pins_changed();
        self.release_if_idle()
    }

    fn may_ask_what_is_left(&self) -> bool {
        !self.trial.digests.is_empty() && self.account.may_ask_what_is_left(&self.trial)
    }

    /// Notes that the connection is released without a leftover check: its statements may have left
    /// state.
    pub(super) fn leaves_unasked(&mut self) {
        let is_empty = self.trial.is_empty();
        if let Some(server) = &mut self.server {
            server.is_checked &= is_empty;
        }
    }

    /// Releases the connection after the client has disconnected or moved to another server, and
    /// checks it in the background.
    pub(super) fn release_after_check(&mut self, mut server: Box<ServerConnection>) {
        let may_ask = self.is_asking() || self.may_ask_what_is_left();
        let trial = std::mem::take(&mut self.trial);
        if trial.digests.is_empty() || !may_ask {
            server.is_checked &= trial.is_empty();
            return self.acquirer.release(server, Condition::Clean);
        }
        let (worker, account) = (Rc::clone(self.worker), Rc::clone(&self.account));
        let service = Arc::clone(self.permit.service());
        let is_fit = async move |server: &mut ServerConnection| {
            let fit = server.is_fit_after(&trial, &account, &service, &worker);
            fit.await.is_ok()
        };
        self.acquirer.release_renewed(server, is_fit);
    }
}

impl Account {
    fn may_ask_what_is_left(&self, trial: &Trial) -> bool {
        let mut trials = self.known.history.trials();
        trials.may_check(&trial.digests, clock::now_ms())
    }

    /// Returns whether the user may not query leftover state. If so, it is not queried again,
    /// except for statements known to have left state.
    fn is_blind(&self, sqlstate: [u8; 5], text: &str, trial: &Trial) -> bool {
        if sqlstate != INSUFFICIENT_PRIVILEGE {
            return false;
        }
        let mut trials = self.known.history.trials();
        if trials.has_leaver(&trial.digests) {
            return false;
        }
        trials.end();
        drop(trials);
        warn_blind(self, text);
        true
    }
}

impl ServerConnection {
    /// Returns whether the privileges in effect may be those of a role other than the login's.
    fn acts_as(&self) -> bool {
        let settings = self.settings.settings();
        settings.get(b"role").is_some() || settings.get(b"session_authorization").is_some()
    }

    /// Checks the connection for leftover state and resets it if there is any.
    async fn is_fit_after(
        &mut self,
        trial: &Trial,
        account: &Account,
        service: &Service,
        worker: &Worker,
    ) -> Result<(), ErrorReply> {
        let left = match self.left(worker).await {
            Ok(left) => left,
            Err(error_reply) => {
                self.is_checked = false;
                let (sqlstate, why) = (error_reply.sqlstate.0, &error_reply.message);
                let is_blind = !self.acts_as() && account.is_blind(sqlstate, why, trial);
                return if is_blind { Ok(()) } else { Err(error_reply) };
            }
        };
        self.checked(trial, &left, account, service);
        match left.pins.is_empty() {
            true => Ok(()),
            false => self.renew(worker).await,
        }
    }

    /// Records the result of the leftover check.
    fn checked(&mut self, trial: &Trial, left: &Leftover, account: &Account, service: &Service) {
        let finding = Finding {
            left: left.pins,
            is_certain: self.is_checked && !trial.unread_ran,
        };
        self.is_checked = left.pins.is_empty();
        let culprit = {
            let mut trials = account.known.history.trials();
            trials.record(&trial.digests, finding)
        };
        if !left.pins.is_empty() {
            warn_left(account, service, (left, trial, culprit));
        }
    }

    /// Returns the leftover state reported by the server, apart from settings that are tracked.
    async fn left(&mut self, worker: &Worker) -> Result<Leftover, ErrorReply> {
        let mut text = Vec::new();
        leftover_query::question(self.settings.settings(), &mut text);
        let rows = self.run(worker, &[&text]).await?;
        Ok(rows.read())
    }
}

/// Returns the texts of statements without literals.
fn statements(service: &Service, digests: &[u64]) -> String {
    let database = service.database();
    let text = |digest: &u64| database.map(|database| database.statement_of(*digest));
    let texts: Vec<_> = digests.iter().filter_map(text).collect();
    texts.join("; ")
}

fn warn_left(
    account: &Account,
    service: &Service,
    (left, trial, culprit): (&Leftover, &Trial, Option<u64>),
) {
    let digests = culprit.as_ref().map_or(&*trial.digests, slice::from_ref);
    let outcome = match culprit {
        Some(_) => "pins its clients from now on: it left state that its text does not show",
        None => "checked on the next runs: after them, state was found that no text shows",
    };
    warn!(
        service = &*service.name,
        user = &*account.pool_user.user,
        database = &*account.pool_user.database,
        statement = statements(service, digests),
        left = %left,
        "{outcome}",
    );
}

fn warn_blind(account: &Account, why: &str) {
    warn!(
        user = &*account.pool_user.user,
        database = &*account.pool_user.database,
        "cannot check what statements of this user leave in a session: {why}; relying on their \
         text alone",
    );
}
