//! How a session comes to a server connection: it borrows one, waits for one, or for a primary; and
//! what must be in place there before its command.

use std::sync::Arc;

use evenkeel_policy::lending::Condition;
use evenkeel_policy::route::{Kind, Statement};
use evenkeel_policy::waiting::{Primary, Trouble};
use evenkeel_wire::mysql::frame::HEADER_LENGTH;
use evenkeel_wire::mysql::frontend;
use evenkeel_wire::mysql::rewrite::Transcoder;

use super::complaint::Complaint;
use super::server::{Ask, ServerConnection};
use super::unit::{Missing, Sense, Unit, Wanted, What};
use super::{At, End, Session, Stage};
use crate::clock;
use crate::service::View;
use crate::service::line::Told;
use crate::session::card::Doing;
use crate::state::mysql::{Difference, Needs, difference};
use crate::upstream::join::{self, JoinError};
use crate::upstream::lending;

type Borrowed = lending::Borrowed<ServerConnection>;
type Delivery = lending::Delivery<ServerConnection>;

/// Connections that do not fit are closed, up to so many in a row.
const UNFIT_MAX: u32 = 100;

/// What came of asking for a connection.
enum Got {
    /// It is lent.
    Server,
    /// It comes.
    Later,
    /// The command is not run, and its client is told this.
    Refused(Complaint),
}

impl Session<'_> {
    /// Asks for a connection for the command. True: it is there.
    pub(super) fn obtain(&mut self, wanted: Wanted, view: &Arc<View>) -> Result<bool, End> {
        match self.ask(wanted, view) {
            Got::Server => Ok(true),
            Got::Later => Ok(false),
            Got::Refused(complaint) => {
                self.refuse(complaint)?;
                Ok(false)
            }
        }
    }

    /// Decides anew where the command goes, whose bytes are kept, and sends it there.
    pub(super) fn try_again(&mut self) -> Result<(), End> {
        self.stage = Stage::Command;
        let view = self.seat.service().view_owned();
        let wanted = self.decide(&view);
        match self.obtain(wanted, &view)? {
            true => self.launch(None),
            false => Ok(()),
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
        let is_calm = self.resumed.is_some() || self.service.line.is_calm();
        if let Some(index) = primary.filter(|_| is_calm) {
            return self.ask_at(view, index, false);
        }
        if primary.is_none() {
            self.service.line.turn(Primary::Away);
        }
        match self.service.line.ask(clock::now_ms()) {
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
        let (Some(own), Some(at)) = (&view.database, At::new(view, index, is_reserved)) else {
            return Got::Refused(Complaint::of_trouble(Trouble::NoPrimary { waited_ms: 0 }));
        };
        let server = Arc::clone(&at.server);
        self.at = Some(at);
        for _ in 0..UNFIT_MAX {
            let pooled = self.account.pooled(&server, own);
            let borrowed = self.lending.borrow(&pooled, &self.place);
            // An operator has had its connections opened anew just now: there is another pool.
            if matches!(borrowed, Borrowed::Refused(_)) && pooled.pool.is_outdated() {
                continue;
            }
            if let Some(got) = self.borrowed(borrowed) {
                return got;
            }
        }
        self.at = None;
        Got::Refused(Complaint::waited())
    }

    /// `None`: the connection does not fit, and is closed.
    fn borrowed(&mut self, borrowed: Borrowed) -> Option<Got> {
        match borrowed {
            Borrowed::Now(server) => self.lent(server).then_some(Got::Server),
            Borrowed::Later(until_ms) => {
                let since_us = clock::now_us();
                self.stage = Stage::Connection { until_ms, since_us };
                self.card.set_deadline(until_ms);
                self.does(Doing::Waiting);
                Some(Got::Later)
            }
            Borrowed::Refused(refusal) => {
                self.at = None;
                Some(Got::Refused(Complaint::refused(refusal)))
            }
        }
    }

    /// A connection is ours. False: it cannot be made as this client's, and was closed.
    fn lent(&mut self, server: Box<ServerConnection>) -> bool {
        if !self.compare(&server) {
            self.lending.give_back(server, Condition::Unclean);
            return false;
        }
        self.card.has(&server.lent);
        self.begins_work();
        self.transcoder = Transcoder::new(server.agreed, self.entrance.agreed);
        self.stage = Stage::Command;
        self.server = Some(server);
        true
    }

    /// Finds out what the session has set and the connection has not. False: nothing can make it
    /// this client's.
    pub(super) fn compare(&mut self, server: &ServerConnection) -> bool {
        let meaning = self.unit.sense.meaning();
        let asked = &self.shared.asked;
        let needs = meaning.map_or(Needs::NONE, |meaning| asked.needs(meaning));
        let goes = self.leaves_schema() && !self.keeps_connection();
        let mut sql = Vec::new();
        self.unit.missing = match difference(&server.settings, &mut self.journal, needs, &mut sql) {
            Difference::Nothing => None,
            // Where it comes from does not matter to whoever goes elsewhere.
            Difference::Put { .. } if goes && sql.is_empty() => None,
            Difference::Put { schema } => Some(Missing {
                schema,
                sql,
                owed: 0,
            }),
            Difference::Unfit => return false,
        };
        true
    }

    /// It goes to another schema, and its own may be there no more.
    fn leaves_schema(&self) -> bool {
        let command = &self.unit.command;
        let payload = command.get(HEADER_LENGTH..).unwrap_or_default();
        match frontend::request(payload, self.entrance.agreed) {
            Ok(frontend::Request::InitDb(_)) => true,
            Ok(frontend::Request::Query { text, .. }) => {
                let meaning = self.unit.sense.meaning();
                let is_one = meaning.is_some_and(|meaning| meaning.statements.len() == 1);
                let first = text.trim_ascii_start().get(..4);
                is_one && first.is_some_and(|first| first.eq_ignore_ascii_case(b"USE "))
            }
            _ => false,
        }
    }

    /// Asks for what must be in place before the command. True: the command has to wait for it.
    pub(super) fn ask_ahead(&mut self, out: &mut Vec<u8>) -> Result<bool, End> {
        let is_harmless = self.is_harmless();
        let several = self.wants_several();
        let statement = self.lacks_statement();
        let statement = statement.map(|statement| (statement, self.within()));
        let Some(server) = &mut self.server else {
            return Ok(true);
        };
        server.close_statements(out);
        let mut must_wait = false;
        if let Some(missing) = &mut self.unit.missing {
            if let Some(schema) = &missing.schema {
                server.ask_schema(Ask::Settings, schema, out);
                missing.owed += 1;
            }
            if !missing.sql.is_empty() {
                server.ask(Ask::Settings, &missing.sql, out);
                missing.owed += 1;
            }
            must_wait = !is_harmless;
        }
        if let Some(several) = several.filter(|several| *several != server.takes_several) {
            server.ask_several(several, out);
        }
        if let Some((statement, now)) = statement {
            Self::prepare_as_then(server, &statement, &now, out);
            must_wait = true;
        }
        if let Some(position) = &self.unit.wait {
            let view = self.seat.service().view();
            let wait_ms = view
                .database
                .as_ref()
                .map_or(0, |own| own.causality.wait_ms);
            let text = wait_text(server.version.mariadb, position, wait_ms);
            server.ask(Ask::Wait, text.as_bytes(), out);
        }
        Ok(must_wait)
    }

    /// Whether its server must take several statements in one text, or must not; `None`: it does
    /// not matter.
    fn wants_several(&self) -> Option<bool> {
        let (What::Query, Sense::Text(meaning)) = (&self.unit.what, &self.unit.sense) else {
            return None;
        };
        // What cannot be read may be several.
        let is_one =
            |statements: &[Statement]| matches!(statements, [one] if one.kind != Kind::Unknown);
        (!is_one(&meaning.statements)).then_some(self.takes_several)
    }

    /// A setting of ours is in place.
    pub(super) fn setting_placed(&mut self, server: &mut ServerConnection) {
        let Some(missing) = &mut self.unit.missing else {
            return;
        };
        missing.owed = missing.owed.saturating_sub(1);
        if missing.owed == 0 {
            self.unit.missing = None;
            let interner = self.worker.interner();
            self.journal.placed(&mut server.settings, interner);
        }
    }

    pub(super) fn delivered(&mut self, delivery: Delivery) -> Result<(), End> {
        self.card.set_deadline(0);
        if let Stage::Connection { since_us, .. } = self.stage {
            let waited_us = clock::now_us().saturating_sub(since_us);
            self.figures().wait_us.observe(waited_us);
        }
        match delivery {
            Delivery::Connection(server) => match self.lent(server) {
                true => self.launch(None),
                false => {
                    self.at = None;
                    self.try_again()
                }
            },
            Delivery::Again => {
                self.at = None;
                self.try_again()
            }
            Delivery::Failed(error) => {
                self.stage = Stage::Command;
                self.not_joined(&error)
            }
        }
    }

    /// A connection could not be opened.
    fn not_joined(&mut self, error: &JoinError) -> Result<(), End> {
        let at = self.at.take();
        if !error.is_passing() {
            let complaint = Complaint::of_join(error);
            let is_denied =
                error.kind == join::Kind::Refused && complaint.code.sqlstate == *b"28000";
            return match is_denied {
                // What the session is made of is good no more.
                true => Err(End::Fatal(complaint)),
                false => self.refuse(complaint),
            };
        }
        self.service.knowledge.doubt(error.server_id);
        self.try_elsewhere(at)
    }

    /// Nothing of the command was sent: a read has other servers to go to, all else waits for one
    /// that takes writes.
    pub(super) fn try_elsewhere(&mut self, at: Option<At>) -> Result<(), End> {
        let Some(at) = at else {
            return self.wait_for_another_primary();
        };
        let is_read = self.unit.is_read && !self.unit.primary_only;
        let is_new = !self.unit.tried.contains(&at.server.id);
        if at.is_replica || is_read && is_new {
            self.unit.tried.push(at.server.id);
            return self.try_again();
        }
        self.wait_for_another_primary()
    }

    /// The server that should be the primary is none now: back to those who wait for one.
    pub(super) fn wait_for_another_primary(&mut self) -> Result<(), End> {
        self.does(Doing::WaitingForPrimary);
        let line = &self.service.line;
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
            Told::Fail(trouble) => self.refuse(Complaint::of_trouble(trouble)),
            // Another worker has just heard that there is one again.
            Told::Go => self.try_again(),
        }
    }

    pub(super) fn turn_has_come(&mut self, outcome: Result<(), Trouble>) -> Result<(), End> {
        let stage = std::mem::replace(&mut self.stage, Stage::Command);
        match (outcome, stage) {
            (Ok(()), Stage::Primary { ticket, .. }) => {
                self.resumed = Some(ticket);
                self.try_again()
            }
            (Err(trouble), _) => self.refuse(Complaint::of_trouble(trouble)),
            (Ok(()), _) => Ok(()),
        }
    }

    /// The work that waited for a primary was answered by it: the next one may follow.
    pub(super) fn let_next_follow(&mut self) {
        if let Some(ticket) = self.resumed.take() {
            self.service.line.done(ticket);
        }
    }

    /// The command is not run: its client is told why, and goes on with the next.
    pub(super) fn refuse(&mut self, complaint: Complaint) -> Result<(), End> {
        self.stage = Stage::Command;
        let Unit { what, .. } = self.drop_unit();
        self.let_next_follow();
        if self.server.is_none() {
            self.at = None;
            self.does(Doing::Idle);
        }
        match what {
            // That one is never answered, not even where it fails: the execution is.
            What::LongData(number) => {
                if let Some(named) = self.numbers.get_mut(number) {
                    named.lacks_data = true;
                }
            }
            _ => self.tell(complaint),
        }
        Ok(())
    }

    /// Something outside has happened: its time is over, it was cancelled, or it is to go on.
    pub(super) fn called(&mut self) -> Result<(), End> {
        if self.card.take_forsaken() && self.server.is_some() {
            return self.server_lost("was found to be down, or is the primary no longer");
        }
        if self.card.take_overtime() {
            let service = self.seat.service();
            crate::session::cancel::cancel(self.worker, &self.card, service);
        }
        let is_waiting = matches!(self.stage, Stage::Connection { .. } | Stage::Primary { .. });
        if self.card.take_cancel() && is_waiting {
            self.leave_lines();
            return self.refuse(Complaint::interrupted());
        }
        match self.stage {
            Stage::Connection { until_ms, .. } if clock::now_ms() >= until_ms => {
                if !self.lending.give_up(&self.place) {
                    // It comes after all.
                    return Ok(());
                }
                self.figures().gave_up.add(1);
                self.refuse(Complaint::waited())
            }
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
            self.service.line.cancel(ticket);
        }
    }
}

/// Waits on a replica until it has what the session wrote.
fn wait_text(
    is_mariadb: bool,
    position: &evenkeel_policy::causality::Position,
    wait_ms: u64,
) -> String {
    let evenkeel_policy::causality::Position::Gtids(gtids) = position else {
        // Another database's: it is never reached.
        return "SELECT 1".to_owned();
    };
    let (whole, thousandths) = (wait_ms / 1_000, wait_ms % 1_000);
    match is_mariadb {
        true => format!("SELECT MASTER_GTID_WAIT('{gtids}', {whole}.{thousandths:03})"),
        false => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', {whole}.{thousandths:03})"),
    }
}
