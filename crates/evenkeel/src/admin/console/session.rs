//! One client of the console: simple queries, and as much of the extended protocol as drivers use.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build::{self, ErrorText};
use evenkeel_wire::postgres::frame::Frame;
use evenkeel_wire::postgres::frontend::{self, Request, Target};
use evenkeel_wire::postgres::{Fault, TransactionStatus};
use tokio::time::timeout;

use super::Console;
use super::command::{Of, Statement, statements};
use super::login;
use super::show::{self, Table};
use super::stream::{End, Stream};
use crate::admin::HEADER_TIMEOUT;
use crate::status::{Command, KillWhich, Reply, Stopped};

/// Statements and portals that one client may keep; drivers keep a few.
const NAMES_MAX: usize = 100;

/// How long PAUSE waits for what runs.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    sqlstate: SqlState,
    message: String,
}

impl Complaint {
    pub(super) fn new(sqlstate: &[u8; 5], message: impl Into<String>) -> Self {
        Self::with(SqlState(*sqlstate), message)
    }

    pub(super) fn with(sqlstate: SqlState, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { sqlstate, message }
    }

    fn of(fault: Fault) -> Self {
        Self::new(b"08P01", format!("protocol violation: {fault}"))
    }
}

impl From<Stopped> for Complaint {
    fn from(stopped: Stopped) -> Self {
        Self::new(b"57P01", stopped.to_string())
    }
}

/// Bytes for the client.
#[derive(Default)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn fatal(&mut self, complaint: &Complaint) {
        self.complain("FATAL", complaint);
    }

    fn complain(&mut self, severity: &str, complaint: &Complaint) {
        let text = text(severity, complaint.sqlstate, &complaint.message);
        build::error(&mut self.0, &text);
    }

    fn notice(&mut self, message: &str) {
        build::notice(&mut self.0, &text("NOTICE", SqlState(*b"00000"), message));
    }

    fn columns(&mut self, names: &[&str]) {
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        build::row_description(&mut self.0, &names);
    }

    fn row(&mut self, row: &[Option<String>]) {
        let values: Vec<_> = row
            .iter()
            .map(|value| value.as_ref().map(String::as_bytes))
            .collect();
        build::data_row(&mut self.0, &values);
    }

    fn ready(&mut self) {
        build::ready_for_query(&mut self.0, TransactionStatus::Idle);
    }
}

fn text<'a>(severity: &'a str, sqlstate: SqlState, message: &'a str) -> ErrorText<'a> {
    ErrorText {
        severity,
        sqlstate,
        message,
        detail: "",
        hint: "",
    }
}

struct Session<'a> {
    console: &'a Console,
    may_change: bool,
    answer: Answer,
    statements: HashMap<Vec<u8>, Statement>,
    portals: HashMap<Vec<u8>, Portal>,
    /// After an error, up to the next Sync.
    is_skipping: bool,
}

/// A statement that can run, or runs: its rows may be fetched piece by piece.
struct Portal {
    statement: Statement,
    rows: Option<VecDeque<Vec<Option<String>>>>,
}

/// What a statement gave.
enum Done {
    Table(Table),
    Said(String),
    Nothing,
}

/// Serves a client until it leaves.
pub(super) async fn converse(
    console: &Console,
    mut stream: Stream,
    peer: IpAddr,
) -> Result<(), End> {
    let admitted = timeout(
        HEADER_TIMEOUT,
        login::admit(&console.guard, &mut stream, peer),
    );
    let Ok(admitted) = admitted.await else {
        return Ok(());
    };
    let may_change = match admitted {
        Ok(Some(may_change)) => may_change,
        Ok(None) => return Ok(()),
        Err(end) => return last_word(&mut stream, end).await,
    };
    let mut session = Session {
        console,
        may_change,
        answer: Answer::default(),
        statements: HashMap::new(),
        portals: HashMap::new(),
        is_skipping: false,
    };
    loop {
        match stream.message().await {
            Err(end) => return last_word(&mut stream, end).await,
            Ok((b'X', _)) => return Ok(()),
            Ok((tag, body)) => session.take(Frame { tag, body: &body }).await,
        }
        if session.must_send(&stream) {
            stream.send(session.answer.bytes()).await?;
            session.answer = Answer::default();
        }
    }
}

async fn last_word(stream: &mut Stream, end: End) -> Result<(), End> {
    let End::Fault(fault) = end else {
        return Err(end);
    };
    let mut answer = Answer::default();
    answer.fatal(&Complaint::of(fault));
    stream.send(answer.bytes()).await
}

impl Session<'_> {
    /// A pipeline is answered as a whole, as far as it is there.
    fn must_send(&self, stream: &Stream) -> bool {
        !stream.has_more() && !self.answer.0.is_empty()
    }

    async fn take(&mut self, frame: Frame<'_>) {
        let request = match frontend::request(frame) {
            Ok(request) => request,
            Err(fault) => return self.fail(&Complaint::of(fault)),
        };
        match request {
            Request::Query { text } => {
                self.is_skipping = false;
                self.query(&String::from_utf8_lossy(text)).await;
                self.answer.ready();
            }
            Request::Sync => {
                self.is_skipping = false;
                self.portals.clear();
                self.answer.ready();
            }
            _ if self.is_skipping => {}
            request => {
                if let Err(complaint) = self.step(request).await {
                    self.fail(&complaint);
                }
            }
        }
    }

    fn fail(&mut self, complaint: &Complaint) {
        self.is_skipping = true;
        self.answer.complain("ERROR", complaint);
    }

    async fn query(&mut self, text: &str) {
        let all = statements(text);
        if all.is_empty() {
            return build::empty(&mut self.answer.0, b'I');
        }
        for text in all {
            if let Err(complaint) = self.run_simple(text).await {
                return self.answer.complain("ERROR", &complaint);
            }
        }
    }

    async fn run_simple(&mut self, text: &str) -> Result<(), Complaint> {
        let statement = Statement::parse(text)?;
        match self.run(&statement).await? {
            Done::Table(table) => {
                self.answer.columns(table.columns);
                table.rows.iter().for_each(|row| self.answer.row(row));
            }
            Done::Said(message) => self.answer.notice(&message),
            Done::Nothing => {}
        }
        build::command_complete(&mut self.answer.0, statement.tag().as_bytes());
        Ok(())
    }

    /// A message of the extended protocol.
    async fn step(&mut self, request: Request<'_>) -> Result<(), Complaint> {
        match request {
            Request::Parse {
                statement, text, ..
            } => {
                let parsed = Statement::parse(&String::from_utf8_lossy(text))?;
                let name = statement.to_vec();
                keep(&mut self.statements, name, parsed)?;
                build::empty(&mut self.answer.0, b'1');
            }
            Request::Bind {
                portal, statement, ..
            } => {
                let statement = self.prepared(statement)?.clone();
                let rows = None;
                keep(
                    &mut self.portals,
                    portal.to_vec(),
                    Portal { statement, rows },
                )?;
                build::empty(&mut self.answer.0, b'2');
            }
            Request::Describe(target) => self.describe(target)?,
            Request::Execute { portal, rows_max } => self.execute(portal, rows_max).await?,
            Request::Close(Target::Statement(name)) => {
                self.statements.remove(name);
                build::empty(&mut self.answer.0, b'3');
            }
            Request::Close(Target::Portal(name)) => {
                self.portals.remove(name);
                build::empty(&mut self.answer.0, b'3');
            }
            Request::Flush => {}
            _ => {
                let message = "the console takes queries only";
                return Err(Complaint::new(b"0A000", message));
            }
        }
        Ok(())
    }

    fn prepared(&self, name: &[u8]) -> Result<&Statement, Complaint> {
        let missing = || {
            let name = String::from_utf8_lossy(name);
            Complaint::new(b"26000", format!("there is no statement \"{name}\""))
        };
        self.statements.get(name).ok_or_else(missing)
    }

    fn describe(&mut self, target: Target<'_>) -> Result<(), Complaint> {
        let statement = match target {
            Target::Statement(name) => {
                let statement = self.prepared(name)?.clone();
                // ParameterDescription: there are none.
                self.answer.0.extend_from_slice(b"t\0\0\0\x06\0\0");
                statement
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                portal.statement.clone()
            }
        };
        match statement {
            Statement::Show(show) => self.answer.columns(show.columns()),
            _ => build::empty(&mut self.answer.0, b'n'),
        }
        Ok(())
    }

    async fn execute(&mut self, name: &[u8], rows_max: u32) -> Result<(), Complaint> {
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        if portal.statement == Statement::Empty {
            build::empty(&mut self.answer.0, b'I');
            return Ok(());
        }
        if portal.rows.is_none() {
            portal.rows = Some(match self.run(&portal.statement).await? {
                Done::Table(table) => table.rows.into(),
                Done::Said(message) => {
                    self.answer.notice(&message);
                    VecDeque::new()
                }
                Done::Nothing => VecDeque::new(),
            });
        }
        let rows = portal.rows.get_or_insert_default();
        let count = match rows_max {
            0 => rows.len(),
            max => rows.len().min(usize::try_from(max).unwrap_or(usize::MAX)),
        };
        rows.drain(..count).for_each(|row| self.answer.row(&row));
        if rows.is_empty() {
            let tag = portal.statement.tag();
            build::command_complete(&mut self.answer.0, tag.as_bytes());
        } else {
            build::empty(&mut self.answer.0, b's');
        }
        self.portals.insert(name.to_vec(), portal);
        Ok(())
    }

    async fn run(&self, statement: &Statement) -> Result<Done, Complaint> {
        if statement.changes() && !self.may_change {
            return Err(Complaint::new(
                b"42501",
                "changing something takes the token: set token_file in [admin], and log in as the \
                 user admin with the token as password",
            ));
        }
        let said = match statement {
            Statement::Show(show) => {
                return Ok(Done::Table(show::table(*show, self.console).await?));
            }
            Statement::Help => return Ok(Done::Said(show::HELP.to_owned())),
            Statement::Empty | Statement::Set => return Ok(Done::Nothing),
            Statement::Reload => self.tell(Command::Reload).await?,
            Statement::Pause(of) => self.pause(of).await?,
            Statement::Resume(of) => {
                let resume = |service, database| Command::Resume { service, database };
                self.tell_services(of, resume).await?
            }
            Statement::Reconnect(of) => {
                let reconnect = |service, database| Command::Reconnect { service, database };
                self.tell_services(of, reconnect).await?
            }
            Statement::Kill(of) => {
                let pause = |service, database| Command::Pause { service, database };
                self.tell_services(of, pause).await?;
                let kill = |service, database| Command::Kill {
                    service,
                    which: KillWhich::Database(database),
                };
                self.tell_services(of, kill).await?
            }
            Statement::KillClient(id) => {
                let kill = |service, _| Command::Kill {
                    service,
                    which: KillWhich::Client(*id),
                };
                self.tell_services(&None, kill).await?
            }
        };
        Ok(Done::Said(said))
    }

    async fn tell(&self, command: Command) -> Result<String, Complaint> {
        said(self.console.control.command(command).await?)
    }

    /// All that are meant are told; one that has done it is enough.
    async fn tell_services(
        &self,
        of: &Of,
        command: impl Fn(String, Option<String>) -> Command,
    ) -> Result<String, Complaint> {
        let (services, database) = self.services(of).await?;
        let (mut done, mut failed) = (Vec::new(), None);
        for service in services {
            match self.tell(command(service, database.clone())).await {
                Ok(message) => done.push(message),
                Err(complaint) => failed = Some(complaint),
            }
        }
        match failed {
            Some(complaint) if done.is_empty() => Err(complaint),
            _ => Ok(done.join("; ")),
        }
    }

    async fn pause(&self, of: &Of) -> Result<String, Complaint> {
        let (services, database) = self.services(of).await?;
        let mut done = Vec::new();
        for service in services {
            let (control, database) = (self.console.control.clone(), database.clone());
            // The client may leave: a pause that does not come about is taken back all the same.
            let pausing = tokio::spawn(async move {
                let database = database.as_deref();
                control.pause(&service, database, PAUSE_LIMIT).await
            });
            done.push(said(pausing.await.map_err(|_| Stopped)??)?);
        }
        Ok(done.join("; "))
    }

    /// The services that are meant, and the database: `service/database` means one service.
    async fn services(&self, of: &Of) -> Result<(Vec<String>, Option<String>), Complaint> {
        let status = self.console.control.status().await?;
        let pooled = status.services.iter().filter(|one| one.database.is_some());
        let names: Vec<String> = pooled.map(|one| one.name.clone()).collect();
        if names.is_empty() {
            let message = "no service pools server connections: there is nothing to do that to";
            return Err(Complaint::new(b"55000", message));
        }
        let Some(name) = of else {
            return Ok((names, None));
        };
        match name.split_once('/') {
            Some((service, database)) if names.iter().any(|one| one == service) => {
                let database = (!database.is_empty()).then(|| database.to_owned());
                Ok((vec![service.to_owned()], database))
            }
            _ => Ok((names, Some(name.clone()))),
        }
    }
}

fn said(reply: Reply) -> Result<String, Complaint> {
    match reply.ok {
        true => Ok(reply.message),
        false => Err(Complaint::new(b"55000", reply.message)),
    }
}

fn no_portal(name: &[u8]) -> Complaint {
    let name = String::from_utf8_lossy(name);
    Complaint::new(b"34000", format!("there is no portal \"{name}\""))
}

/// The unnamed one may be replaced, as in a server; a client does not keep more than it may.
fn keep<T>(all: &mut HashMap<Vec<u8>, T>, name: Vec<u8>, thing: T) -> Result<(), Complaint> {
    if all.len() >= NAMES_MAX && !all.contains_key(&name) {
        let message = format!("a client of the console keeps {NAMES_MAX} statements at most");
        return Err(Complaint::new(b"54000", message));
    }
    all.insert(name, thing);
    Ok(())
}
