//! What a client's statements have left on its server connection, beside what was read of them: the
//! server is asked before another client gets the connection, while they are on trial.

use std::rc::Rc;

use evenkeel_policy::lending::Condition;
use evenkeel_policy::pins::Pins;
use evenkeel_policy::trials::{ON_TRIAL_MAX, Verdict};
use evenkeel_wire::postgres::boundaries::Event;
use evenkeel_wire::postgres::conversation::Token;
use tracing::warn;

use super::account::Account;
use super::complaint::Complaint;
use super::server::ServerConnection;
use super::{End, Session, Stage};
use crate::clock;
use crate::engine::worker::Worker;
use crate::state::settings::leftover;

/// The server does not let this user look.
const INSUFFICIENT_PRIVILEGE: [u8; 5] = *b"42501";

impl Session<'_> {
    /// A statement is run that was read; zero: it was not, and binds already.
    pub(super) fn runs(&mut self, digest: u64) {
        if digest == 0 {
            return;
        }
        let catalog = self.account.catalog_version();
        let verdict = self.account.known.habits.trials().verdict(digest, catalog);
        match verdict {
            Verdict::Trusted => {}
            Verdict::OnTrial => {
                let is_noted = self.on_trial.contains(&digest);
                if !is_noted && self.on_trial.len() < ON_TRIAL_MAX {
                    self.on_trial.push(digest);
                }
            }
            Verdict::Leaves(left) => {
                // What was sent before it may yet release what it leaves: then the server is asked.
                if !self.on_trial.contains(&digest) {
                    self.on_trial.push(digest);
                }
                self.journal.pins = self.journal.pins.and(left);
                self.card.set_pins(self.journal.pins);
            }
        }
    }

    /// Before the connection goes to another client, the server is asked what is left on it, as
    /// long as something is on trial. True: its answer decides what follows.
    pub(super) fn asks_what_is_left(&mut self) -> bool {
        let may_ask = self.may_ask_what_is_left();
        let Some(server) = self.server.as_mut().filter(|_| may_ask) else {
            return false;
        };
        let mut text = Vec::new();
        leftover::question(server.settings.settings(), &mut text);
        let mut out = self.worker.spare();
        if !server.ask(&text, Token::default(), &mut out) {
            return false;
        }
        // If it fails, the next receive says so.
        let _ = server.lent.stream.send_own(self.worker, out);
        self.refused_setting = ([0; 5], String::new());
        self.stage = Stage::Asking(0);
        true
    }

    /// Whether the client has had its answer, and only what it leaves is asked for.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    /// How many rows the answer to a question of ours has: what is left, if it is that.
    pub(super) fn hear_what_is_left(&mut self, event: &Event<'_>) {
        if let (Stage::Asking(rows), Event::CommandComplete(tag)) = (&mut self.stage, event) {
            *rows = tag.rows().unwrap_or_default();
        }
    }

    /// The server has said what is left on the connection of so many rows.
    pub(super) fn heard_what_is_left(&mut self, rows: u64) -> Result<(), End> {
        self.stage = Stage::Ready;
        let (sqlstate, text) = std::mem::take(&mut self.refused_setting);
        if sqlstate != [0; 5] {
            let acts_as = self.server.as_ref().is_some_and(|server| server.acts_as());
            let on_trial = std::mem::take(&mut self.on_trial);
            let is_blind = !acts_as && self.account.is_blind(sqlstate, &text, &on_trial);
            return self.let_go(match is_blind {
                true => Condition::Clean,
                false => Condition::Unclean,
            });
        }
        let left = leftover::of_answer(rows);
        self.account.told_what_is_left(&self.on_trial, left);
        self.on_trial.clear();
        self.journal.pins = self.journal.pins.and(left);
        self.card.set_pins(self.journal.pins);
        self.release_if_idle()
    }

    fn may_ask_what_is_left(&self) -> bool {
        !self.on_trial.is_empty() && self.account.may_ask_what_is_left(&self.on_trial)
    }

    /// Nothing is known that the client, which has gone elsewhere, has left on the connection.
    pub(super) fn give_back_behind(&mut self, server: Box<ServerConnection>) {
        let may_ask = self.is_asking() || self.may_ask_what_is_left();
        let on_trial = std::mem::take(&mut self.on_trial);
        if on_trial.is_empty() || !may_ask {
            return self.borrower.give_back(server, Condition::Clean);
        }
        let (home, account) = (Rc::clone(self.worker), Rc::clone(&self.account));
        let is_fit = async move |server: &mut ServerConnection| {
            let fit = server.is_fit_behind(&on_trial, &account, &home).await;
            fit.is_ok()
        };
        self.borrower.give_back_renewed(server, is_fit);
    }
}

impl Account {
    fn may_ask_what_is_left(&self, on_trial: &[u64]) -> bool {
        let mut trials = self.known.habits.trials();
        trials.may_ask(on_trial, clock::now_ms())
    }

    fn told_what_is_left(&self, on_trial: &[u64], left: Pins) {
        let is_found = self.known.habits.trials().told(on_trial, left);
        if !left.is_empty() {
            tell_left(self, left, on_trial, is_found);
        }
    }

    /// Whether it may not look at what is left, and so is not asked again, but for what is known to
    /// have left something.
    fn is_blind(&self, sqlstate: [u8; 5], text: &str, on_trial: &[u64]) -> bool {
        if sqlstate != INSUFFICIENT_PRIVILEGE {
            return false;
        }
        let mut trials = self.known.habits.trials();
        if trials.has_leaver(on_trial) {
            return false;
        }
        trials.end();
        drop(trials);
        tell_blind(self, text);
        true
    }
}

impl ServerConnection {
    /// Whether what it may look at is another role's business than that of its login.
    fn acts_as(&self) -> bool {
        let settings = self.settings.settings();
        settings.get(b"role").is_some() || settings.get(b"session_authorization").is_some()
    }

    /// Asks what is left on it, and takes it away.
    async fn is_fit_behind(
        &mut self,
        on_trial: &[u64],
        account: &Account,
        worker: &Worker,
    ) -> Result<(), Complaint> {
        let left = match self.left(worker).await {
            Ok(left) => left,
            Err(complaint) => {
                let (sqlstate, why) = (complaint.sqlstate.0, &complaint.message);
                let is_blind = !self.acts_as() && account.is_blind(sqlstate, why, on_trial);
                return if is_blind { Ok(()) } else { Err(complaint) };
            }
        };
        account.told_what_is_left(on_trial, left);
        match left.is_empty() {
            true => Ok(()),
            false => self.renew(worker).await,
        }
    }

    /// What the server says is left on it beside the settings that are known.
    async fn left(&mut self, worker: &Worker) -> Result<Pins, Complaint> {
        let mut text = Vec::new();
        leftover::question(self.settings.settings(), &mut text);
        let told = self.run(worker, &[&text]).await?;
        Ok(leftover::of_answer(told))
    }
}

fn tell_left(account: &Account, left: Pins, on_trial: &[u64], is_found: bool) {
    let digests: Vec<String> = on_trial.iter().map(|one| format!("{one:016x}")).collect();
    let then = match is_found {
        true => "it binds its clients from now on",
        false => "which of them, their next runs tell",
    };
    warn!(
        user = &*account.who.user,
        database = &*account.who.database,
        digests = digests.join(" "),
        "statements left more on their connection than their text tells: {left}; {then}",
    );
}

fn tell_blind(account: &Account, why: &str) {
    warn!(
        user = &*account.who.user,
        database = &*account.who.database,
        "this user cannot be asked what its statements leave behind: {why}; what is read of \
         their texts must do",
    );
}
