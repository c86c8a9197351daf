//! Serves one MySQL client of the console: text queries, and the other commands that clients use.

use std::net::IpAddr;

use evenkeel_wire::mysql::ProtocolError;
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frontend::{self, Code, Request};
use tokio::time::timeout;

use super::answer::Answer;
use super::login::{self, Admitted};
use super::{End, packet};
use crate::admin::HEADER_TIMEOUT;
use crate::admin::console::command::{ConsoleCommand, statements};
use crate::admin::console::command_runner::{CommandResult, CommandRunner};
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};
use crate::admin::console::show::help_table;
use crate::admin::console::stream::Stream;
use crate::admin::console::{Console, Dialect};

struct Session<'a> {
    runner: CommandRunner<'a>,
    capabilities: Capabilities,
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
    let Admitted { user, capabilities } = match admitted {
        Ok(Some(admitted)) => admitted,
        Ok(None) => return Ok(()),
        Err(end) => return send_final_error(&mut stream, 2, end).await,
    };
    let dialect = Dialect::Mysql;
    let runner = CommandRunner {
        console,
        dialect,
        user,
    };
    let mut session = Session {
        runner,
        capabilities,
    };
    loop {
        let payload = match packet(&mut stream, 0).await {
            Ok(payload) => payload,
            Err(end) => return send_final_error(&mut stream, 1, end).await,
        };
        let Some(answer) = session.handle_packet(&payload).await else {
            return Ok(());
        };
        stream.send(answer.bytes()).await?;
    }
}

async fn send_final_error(stream: &mut Stream, sequence: u8, end: End) -> Result<(), End> {
    let End::Fault(fault) = end else {
        return Err(end);
    };
    let mut answer = Answer::new(sequence, Capabilities::PROTOCOL_41);
    answer.error(&violation(fault));
    Ok(stream.send(answer.bytes()).await?)
}

fn violation(fault: ProtocolError) -> ConsoleError {
    ConsoleError::new(
        ConsoleErrorKind::Protocol,
        format!("protocol violation: {fault}"),
    )
}

impl Session<'_> {
    /// Returns the response to a command. `None`: the client disconnects.
    async fn handle_packet(&mut self, payload: &[u8]) -> Option<Answer> {
        let mut answer = Answer::new(1, self.capabilities);
        let request = match frontend::request(payload, self.capabilities) {
            Ok(request) => request,
            Err(fault) => {
                answer.error(&violation(fault));
                return Some(answer);
            }
        };
        match request {
            Request::Quit => return None,
            Request::Query { text, .. } => {
                let text = String::from_utf8_lossy(text);
                if let Err(error) = self.query(&text, &mut answer).await {
                    answer.has_more_results = false;
                    answer.error(&error);
                }
            }
            Request::InitDb(schema) => {
                let schema = String::from_utf8_lossy(schema).into_owned();
                self.runner.user.schema = Some(schema);
                answer.ok("");
            }
            Request::Ping | Request::ResetConnection => answer.ok(""),
            // Several statements in one text are always allowed. The list of fields is empty:
            // clients can use SHOW to list columns.
            Request::SetOption { .. } | Request::FieldList { .. } => answer.end(),
            // These commands have no response.
            Request::Close(_) | Request::LongData { .. } => {}
            Request::Other {
                code: Code::Statistics,
                ..
            } => answer.text("See SHOW STATS."),
            _ => {
                let message = "only text queries are supported; prepared statements are not";
                answer.error(&ConsoleError::new(ConsoleErrorKind::Unsupported, message));
            }
        }
        Some(answer)
    }

    async fn query(&mut self, text: &str, answer: &mut Answer) -> Result<(), ConsoleError> {
        let all = statements(text);
        if all.is_empty() {
            return Err(ConsoleError::new(
                ConsoleErrorKind::Syntax,
                "Query was empty",
            ));
        }
        for (index, text) in all.iter().enumerate() {
            let statement = self.runner.prepare(text).await?;
            let done = self.runner.run(&statement).await?;
            answer.has_more_results = index + 1 < all.len();
            match done {
                CommandResult::Table(table) => answer.table(&table),
                CommandResult::Message(help) if statement == ConsoleCommand::Help => {
                    answer.table(&help_table(&help))
                }
                CommandResult::Message(message) => answer.ok(&message),
                CommandResult::Nothing => answer.ok(""),
            }
        }
        Ok(())
    }
}
