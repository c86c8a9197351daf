//! Serves one PostgreSQL client of the console: simple queries, and the part of the extended
//! protocol that drivers use.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build::{self, ErrorText};
use evenkeel_wire::postgres::frame::Frame;
use evenkeel_wire::postgres::frontend::{self, Request, Target};
use evenkeel_wire::postgres::{ProtocolError, TransactionStatus};
use tokio::time::timeout;

use super::{End, login, message};
use crate::admin::HEADER_TIMEOUT;
use crate::admin::console::command::{ConsoleCommand, statements};
use crate::admin::console::command_runner::{CommandResult, CommandRunner};
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};
use crate::admin::console::stream::Stream;
use crate::admin::console::{Console, Dialect};

/// Maximum number of statements, and of portals, that one client may keep; drivers keep a few.
const NAMES_MAX: usize = 100;

/// Bytes of a response.
#[derive(Default)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn fatal(&mut self, sqlstate: SqlState, message: &str) {
        build::error(&mut self.0, &text("FATAL", sqlstate, message));
    }

    fn error(&mut self, error: &ConsoleError) {
        let text = text("ERROR", error.kind.postgres(), &error.message);
        build::error(&mut self.0, &text);
    }

    fn notice(&mut self, message: &str) {
        build::notice(&mut self.0, &text("NOTICE", SqlState(*b"00000"), message));
    }

    fn columns(&mut self, names: &[String]) {
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
    runner: CommandRunner<'a>,
    answer: Answer,
    statements: HashMap<Vec<u8>, ConsoleCommand>,
    portals: HashMap<Vec<u8>, Portal>,
    /// True after an error, until the next Sync.
    is_skipping: bool,
}

/// Statement that can run, or runs: its rows may be fetched in several parts.
struct Portal {
    statement: ConsoleCommand,
    rows: Option<VecDeque<Vec<Option<String>>>>,
}

/// Serves a client until it disconnects.
pub(in crate::admin::console) async fn serve_session(
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
    let user = match admitted {
        Ok(Some(user)) => user,
        Ok(None) => return Ok(()),
        Err(end) => return send_final_error(&mut stream, end).await,
    };
    let mut session = Session {
        runner: CommandRunner {
            console,
            dialect: Dialect::Postgres,
            user,
        },
        answer: Answer::default(),
        statements: HashMap::new(),
        portals: HashMap::new(),
        is_skipping: false,
    };
    loop {
        match message(&mut stream).await {
            Err(end) => return send_final_error(&mut stream, end).await,
            Ok((b'X', _)) => return Ok(()),
            Ok((tag, body)) => session.handle_message(Frame { tag, body: &body }).await,
        }
        if session.must_send(&stream) {
            stream.send(session.answer.bytes()).await?;
            session.answer = Answer::default();
        }
    }
}

async fn send_final_error(stream: &mut Stream, end: End) -> Result<(), End> {
    let End::Fault(fault) = end else {
        return Err(end);
    };
    let mut answer = Answer::default();
    answer.fatal(ConsoleErrorKind::Protocol.postgres(), &violation(fault));
    Ok(stream.send(answer.bytes()).await?)
}

fn violation(fault: ProtocolError) -> String {
    format!("protocol violation: {fault}")
}

impl Session<'_> {
    /// Returns whether responses must be sent now. Those of a pipeline are sent together, as far as
    /// it has been received.
    fn must_send(&self, stream: &Stream) -> bool {
        !stream.has_more() && !self.answer.0.is_empty()
    }

    async fn handle_message(&mut self, frame: Frame<'_>) {
        let request = match frontend::request(frame) {
            Ok(request) => request,
            Err(fault) => {
                return self.fail(&ConsoleError::new(
                    ConsoleErrorKind::Protocol,
                    violation(fault),
                ));
            }
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
                if let Err(error) = self.step(request).await {
                    self.fail(&error);
                }
            }
        }
    }

    fn fail(&mut self, error: &ConsoleError) {
        self.is_skipping = true;
        self.answer.error(error);
    }

    async fn query(&mut self, text: &str) {
        let all = statements(text);
        if all.is_empty() {
            return build::empty(&mut self.answer.0, b'I');
        }
        for text in all {
            if let Err(error) = self.run_simple(text).await {
                return self.answer.error(&error);
            }
        }
    }

    async fn run_simple(&mut self, text: &str) -> Result<(), ConsoleError> {
        let statement = self.runner.prepare(text).await?;
        match self.runner.run(&statement).await? {
            CommandResult::Table(table) => {
                self.answer.columns(&table.columns);
                table.rows.iter().for_each(|row| self.answer.row(row));
            }
            CommandResult::Message(message) => self.answer.notice(&message),
            CommandResult::Nothing => {}
        }
        build::command_complete(&mut self.answer.0, statement.tag().as_bytes());
        Ok(())
    }

    /// Runs a message of the extended protocol.
    async fn step(&mut self, request: Request<'_>) -> Result<(), ConsoleError> {
        match request {
            Request::Parse {
                statement, text, ..
            } => {
                let text = String::from_utf8_lossy(text);
                let parsed = self.runner.prepare(&text).await?;
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
                let message = "only queries are supported";
                return Err(ConsoleError::new(ConsoleErrorKind::Unsupported, message));
            }
        }
        Ok(())
    }

    fn prepared(&self, name: &[u8]) -> Result<&ConsoleCommand, ConsoleError> {
        let missing = || {
            let name = String::from_utf8_lossy(name);
            ConsoleError::new(
                ConsoleErrorKind::UnknownStatement,
                format!("prepared statement \"{name}\" does not exist"),
            )
        };
        self.statements.get(name).ok_or_else(missing)
    }

    fn describe(&mut self, target: Target<'_>) -> Result<(), ConsoleError> {
        let statement = match target {
            Target::Statement(name) => {
                let statement = self.prepared(name)?.clone();
                // ParameterDescription without parameters.
                self.answer.0.extend_from_slice(b"t\0\0\0\x06\0\0");
                statement
            }
            Target::Portal(name) => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                portal.statement.clone()
            }
        };
        match statement.columns() {
            Some(columns) => self.answer.columns(&columns),
            None => build::empty(&mut self.answer.0, b'n'),
        }
        Ok(())
    }

    async fn execute(&mut self, name: &[u8], rows_max: u32) -> Result<(), ConsoleError> {
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        if portal.statement == ConsoleCommand::Empty {
            build::empty(&mut self.answer.0, b'I');
            return Ok(());
        }
        if portal.rows.is_none() {
            portal.rows = Some(match self.runner.run(&portal.statement).await? {
                CommandResult::Table(table) => table.rows.into(),
                CommandResult::Message(message) => {
                    self.answer.notice(&message);
                    VecDeque::new()
                }
                CommandResult::Nothing => VecDeque::new(),
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
}

fn no_portal(name: &[u8]) -> ConsoleError {
    let name = String::from_utf8_lossy(name);
    ConsoleError::new(
        ConsoleErrorKind::UnknownPortal,
        format!("portal \"{name}\" does not exist"),
    )
}

/// Stores a statement or portal, up to `NAMES_MAX`. One of the same name is replaced, as a server
/// does with the unnamed one.
fn keep<T>(all: &mut HashMap<Vec<u8>, T>, name: Vec<u8>, value: T) -> Result<(), ConsoleError> {
    if all.len() >= NAMES_MAX && !all.contains_key(&name) {
        let message = format!("too many prepared statements or portals (limit {NAMES_MAX})");
        return Err(ConsoleError::new(
            ConsoleErrorKind::TooManyStatements,
            message,
        ));
    }
    all.insert(name, value);
    Ok(())
}
