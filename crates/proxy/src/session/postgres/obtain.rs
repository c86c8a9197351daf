//! How a session comes to a server connection: it borrows one, waits for one, or for a primary.

use std::sync::Arc;

use evenkeel_policy::lending::Condition;
use evenkeel_policy::waiting::{Primary, Trouble};
use evenkeel_wire::postgres::conversation::Token;
use evenkeel_wire::postgres::requests::Step;
use evenkeel_wire::postgres::{TransactionStatus, build};

use super::complaint::Complaint;
use super::server::ServerConnection;
use super::unit::Wanted;
use super::{At, End, Session, Stage, Unit};
use crate::clock;
use crate::service::View;
use crate::service::line::Told;
use crate::session::{self, card::Doing};
use crate::upstream::join::JoinError;
use crate::upstream::lending::{Borrowed, Delivery};

/// What came of asking for a connection.
enum Got {
    /// It is lent, and fit.
    Server,
    /// It comes, or its settings are being put in place.
    Later,
    /// The unit is not run, and its client is told this.
    Refused(Complaint),
}

impl Session<'_> {
    /// Asks for a connection for the unit ahead, whose bytes the caller has. True: it is there, and
    /// they can go. False: they are to be held.
    pub(super) fn obtain(&mut self, wanted: Wanted, view: &Arc<View>) -> Result<bool, End> {
        match self.ask(wanted, view) {
            Got::Server => Ok(true),
            Got::Later => Ok(false),
            Got::Refused(complaint) => {
                self.refusal = Some(complaint);
                self.card.call();
                Ok(false)
            }
        }
    }

    fn ask(&mut self, wanted: Wanted, view: &Arc<View>) -> Got {
        match wanted {
            Wanted::Reader(index) => self.ask_at(view, index, true),
            Wanted::Named(index) => self.ask_at(view, index, false),
            Wanted::Primary => self.ask_primary(view),
        }
    }

    fn ask_primary(&mut self, view: &Arc<View>) -> Got {
        let primary = view.database.as_ref().and_then(|own| own.primary);
        if let Some(index) = primary
            && (self.resumed.is_some() || self.shared.line.is_calm())
        {
            return self.ask_at(view, index, false);
        }
        if primary.is_none() {
            self.shared.line.turn(Primary::Away);
        }
        match self.shared.line.ask(clock::now_ms()) {
            Told::Go => match primary {
                Some(index) => self.ask_at(view, index, false),
                None => Got::Refused(Complaint::of_trouble(Trouble::NoPrimary { waited_ms: 0 })),
            },
            Told::Wait(ticket, turn) => {
                self.does(Doing::WaitingForPrimary);
                self.stage = Stage::Primary { ticket, turn };
                Got::Later
            }
            Told::Fail(trouble) => Got::Refused(Complaint::of_trouble(trouble)),
        }
    }

    /// Borrows a connection to a server of the view.
    fn ask_at(&mut self, view: &Arc<View>, index: usize, is_reserved: bool) -> Got {
        let (Some(database), Some(at)) = (&view.database, At::new(view, index, is_reserved)) else {
            return Got::Later;
        };
        let mut borrowed;
        loop {
            let pooled = self.account.pooled(&at.server, database);
            borrowed = self.lending.borrow(&pooled, &self.place);
            // An operator has had its connections opened anew just now: there is another pool.
            let is_gone = matches!(borrowed, Borrowed::Refused(_)) && pooled.pool.is_outdated();
            if !is_gone {
                break;
            }
        }
        self.at = Some(at);
        match borrowed {
            Borrowed::Now(server) => self.lent(server),
            Borrowed::Later(until_ms) => {
                let since_us = clock::now_us();
                self.stage = Stage::Connection { until_ms, since_us };
                self.card.set_deadline(until_ms);
                self.does(Doing::Waiting);
                Got::Later
            }
            Borrowed::Refused(refusal) => {
                self.at = None;
                Got::Refused(Complaint::refused(refusal))
            }
        }
    }

    /// A connection is ours: first what the client has set is set on it.
    fn lent(&mut self, mut server: Box<ServerConnection>) -> Got {
        self.card.has(&server.lent);
        self.begins_work();
        self.stage = Stage::Ready;
        self.drew = false;
        let interner = self.worker.interner();
        let mut sql = Vec::new();
        let wanted = server.settings.prepare(&self.journal, interner, &mut sql);
        let Some(wanted) = wanted else {
            self.catch_up(&server);
            self.server = Some(server);
            return Got::Server;
        };
        let mut out = self.worker.spare();
        server.ask(&sql, Token::default(), &mut out);
        // If it fails, the next receive says so.
        let _ = server.lent.stream.send_own(self.worker, out);
        self.server = Some(server);
        self.stage = Stage::Preparing(Some(wanted));
        self.restoring = false;
        self.refused_setting = ([0; 5], String::new());
        Got::Later
    }

    /// Puts back what a RESET has taken of the settings that the client began with, on a connection
    /// that it keeps.
    pub(super) fn restore(&mut self) -> Result<(), End> {
        self.owes_restore = false;
        self.refused_setting = ([0; 5], String::new());
        let interner = self.worker.interner();
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        let mut sql = Vec::new();
        let wanted = match server.conversation.is_idle() {
            true => server.settings.prepare(&self.journal, interner, &mut sql),
            false => {
                self.journal.restore(&server.settings, &mut sql);
                None
            }
        };
        let mut out = self.worker.spare();
        if sql.is_empty() || !server.ask(&sql, Token::default(), &mut out) {
            return Ok(());
        }
        // If it fails, the next receive says so.
        let _ = server.lent.stream.send_own(self.worker, out);
        self.stage = Stage::Preparing(wanted);
        self.restoring = true;
        Ok(())
    }

    /// Tells the client what its server reports otherwise than the one before.
    fn catch_up(&mut self, server: &ServerConnection) {
        let mut out = std::mem::take(&mut self.answers);
        let settings = self.journal.settings().clone();
        let interner = self.worker.interner();
        let reported = &mut self.journal.reported;
        reported.catch_up(&server.settings, &settings, interner, |name, value| {
            build::parameter_status(&mut out, name, value);
        });
        self.answers = out;
    }

    /// Our SETs are over.
    pub(super) fn settings_placed(&mut self, went_well: bool) -> Result<(), End> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        let (Stage::Preparing(wanted), Some(mut server)) = (stage, self.server.take()) else {
            return Ok(());
        };
        let is_restored = std::mem::take(&mut self.restoring);
        if !went_well && is_restored {
            self.server = Some(server);
            let text = std::mem::take(&mut self.refused_setting);
            let why = format!("a setting that was reset cannot be put back: {}", text.1);
            return Err(End::Fatal(Complaint::new(&text.0, why)));
        }
        if !went_well && self.refused_setting.0.starts_with(b"57P0") {
            self.card.has_none();
            self.lending.give_back(server, Condition::Unclean);
            return self.lost_before_sending();
        }
        if !went_well {
            self.card.has_none();
            self.at = None;
            self.lending.give_back(server, Condition::Unclean);
            let text = std::mem::take(&mut self.refused_setting);
            let complaint = Complaint::new(
                &text.0,
                format!(
                    "a setting of this session was refused by the server: {}",
                    text.1
                ),
            );
            return self.refuse(&complaint);
        }
        if let Some(wanted) = wanted {
            server.settings.placed(wanted, self.worker.interner());
        }
        self.catch_up(&server);
        self.server = Some(server);
        self.go_on()
    }

    pub(super) fn delivered(&mut self, delivery: Delivery<ServerConnection>) -> Result<(), End> {
        self.card.set_deadline(0);
        if let Stage::Connection { since_us, .. } = self.stage {
            let waited_us = clock::now_us().saturating_sub(since_us);
            self.figures().wait_us.observe(waited_us);
        }
        match delivery {
            Delivery::Connection(server) => match self.lent(server) {
                Got::Server => self.go_on(),
                Got::Later | Got::Refused(_) => Ok(()),
            },
            Delivery::Again => {
                self.stage = Stage::Ready;
                self.at = None;
                self.go_on()
            }
            Delivery::Failed(error) => {
                self.stage = Stage::Ready;
                self.not_joined(&error)
            }
        }
    }

    /// A connection could not be opened.
    fn not_joined(&mut self, error: &JoinError) -> Result<(), End> {
        let at = self.at.take();
        if !error.is_passing() {
            let complaint = Complaint::of_join(error);
            return match &complaint.sqlstate.0 {
                // What the session is made of is good no more.
                b"28P01" | b"28000" | b"3D000" => Err(End::Fatal(complaint)),
                _ => self.refuse(&complaint),
            };
        }
        self.shared.knowledge.doubt(error.server_id);
        self.try_elsewhere(at)
    }

    /// Nothing of the unit was sent: a read has other servers to go to, all else waits for one that
    /// takes writes.
    pub(super) fn try_elsewhere(&mut self, at: Option<At>) -> Result<(), End> {
        let Some(at) = at else {
            return self.wait_for_another_primary();
        };
        let is_read = self.unit.is_read && !self.unit.primary_only;
        let is_new = !self.unit.tried.contains(&at.server.id);
        if at.is_replica || is_read && is_new {
            self.unit.tried.push(at.server.id);
            return self.go_on();
        }
        self.wait_for_another_primary()
    }

    /// The server that should be the primary is none now: back to those who wait for one.
    pub(super) fn wait_for_another_primary(&mut self) -> Result<(), End> {
        self.does(Doing::WaitingForPrimary);
        let line = &self.shared.line;
        if let Some(ticket) = self.resumed.take() {
            let turn = line.wait_on(ticket);
            self.stage = Stage::Primary { ticket, turn };
            return Ok(());
        }
        line.turn(Primary::Away);
        match line.ask(clock::now_ms()) {
            Told::Wait(ticket, turn) => {
                self.stage = Stage::Primary { ticket, turn };
                Ok(())
            }
            Told::Fail(trouble) => self.refuse(&Complaint::of_trouble(trouble)),
            // Another worker has just heard that there is one again.
            Told::Go => self.go_on(),
        }
    }

    pub(super) fn turn_has_come(&mut self, outcome: Result<(), Trouble>) -> Result<(), End> {
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        match (outcome, stage) {
            (Ok(()), Stage::Primary { ticket, .. }) => {
                self.resumed = Some(ticket);
                self.go_on()
            }
            (Err(trouble), _) => self.refuse(&Complaint::of_trouble(trouble)),
            (Ok(()), _) => Ok(()),
        }
    }

    /// The work that waited for a primary was answered by it: the next one may follow.
    pub(super) fn let_next_follow(&mut self) {
        if let Some(ticket) = self.resumed.take() {
            self.shared.line.done(ticket);
        }
    }

    /// The unit whose bytes are held is not run: its client is told why, and goes on with the next.
    pub(super) fn refuse(&mut self, complaint: &Complaint) -> Result<(), End> {
        self.stage = Stage::Ready;
        self.at = None;
        self.let_next_follow();
        let is_over = self.drop_unit()?;
        self.unit = Unit::new();
        self.does(Doing::Idle);
        let out = self.answers();
        complaint.write_error(out);
        if is_over {
            build::ready_for_query(out, TransactionStatus::Idle);
        } else {
            self.unit.skipping = true;
        }
        // What comes behind it is looked at in a step of its own.
        self.card.call();
        Ok(())
    }

    /// Forgets the bytes of the unit ahead. True: all of it was there.
    fn drop_unit(&mut self) -> Result<bool, End> {
        use evenkeel_wire::postgres::conversation::Request;
        self.effects.read_ahead = None;
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        let is_over = loop {
            match self.walker.next(held.get(at..).unwrap_or_default()) {
                Step::Message {
                    passed,
                    request,
                    length,
                    ..
                }
                | Step::Beginning {
                    passed,
                    request,
                    length,
                    ..
                } => {
                    at += passed + length;
                    if matches!(
                        request,
                        Request::Query | Request::FunctionCall | Request::Sync
                    ) {
                        break true;
                    }
                    if request == Request::Terminate {
                        return Err(End::ClientLeft);
                    }
                }
                Step::Wait { passed, .. } => {
                    at += passed;
                    break false;
                }
                Step::Invalid(fault) => return Err(End::Fatal(Complaint::protocol(fault))),
            }
        };
        self.hold(&held[at..]);
        Ok(is_over)
    }

    /// Something outside has happened: its time is over, it was cancelled, or it is to go on.
    pub(super) fn called(&mut self) -> Result<(), End> {
        if self.card.take_forsaken() && self.server.is_some() {
            return self.server_lost("was found to be down, or is the primary no longer");
        }
        if self.card.take_overtime() {
            session::cancel::cancel(self.worker, &self.card, self.seat.service());
        }
        if let Some(complaint) = self.refusal.take() {
            return self.refuse(&complaint);
        }
        let is_waiting = matches!(self.stage, Stage::Connection { .. } | Stage::Primary { .. });
        if self.card.take_cancel() && is_waiting {
            self.leave_lines();
            let text = "canceling statement due to user request";
            return self.refuse(&Complaint::new(b"57014", text));
        }
        match self.stage {
            Stage::Connection { until_ms, .. } if clock::now_ms() >= until_ms => {
                if !self.lending.give_up(&self.place) {
                    // It comes after all.
                    return Ok(());
                }
                self.figures().gave_up.add(1);
                self.refuse(&Complaint::waited())
            }
            Stage::Ready if self.server.is_none() => self.go_on(),
            _ => Ok(()),
        }
    }

    /// Waits for nothing any more.
    pub(super) fn leave_lines(&mut self) {
        self.lending.leave_line(&self.place);
        if let Some(Delivery::Connection(server)) = self.place.take_late() {
            self.lending.give_back(server, Condition::Clean);
        }
        if let Stage::Primary { ticket, .. } = self.stage {
            self.shared.line.cancel(ticket);
        }
    }
}
