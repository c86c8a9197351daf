//! Runs the commands of a console client, for either protocol.

use std::time::Duration;

use super::command::{CommandScope, ConsoleCommand, Query, Value};
use super::error::{ConsoleError, ConsoleErrorKind};
use super::show::{self, Row, Show, Table};
use super::sqlite;
use super::{Console, Dialect};
use crate::status::{Command, KillWhich, Reply, Status, StatusSelection, Stopped};

/// Limit for the wait of PAUSE for running transactions.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);

/// Runs the commands of one client, independent of the protocol.
pub(super) struct CommandRunner<'a> {
    pub(super) console: &'a Console,
    pub(super) dialect: Dialect,
    pub(super) user: ConsoleUser,
}

/// Identity of a client.
pub(super) struct ConsoleUser {
    pub(super) user: String,
    /// Schema that the client named. Has no effect.
    pub(super) schema: Option<String>,
    pub(super) connection: u32,
    pub(super) may_change: bool,
}

/// Result of a statement.
pub(super) enum CommandResult {
    Table(Table),
    Message(String),
    Nothing,
}

impl CommandRunner<'_> {
    pub(super) async fn run(
        &mut self,
        statement: &ConsoleCommand,
    ) -> Result<CommandResult, ConsoleError> {
        if statement.changes_state() && !self.user.may_change {
            return Err(ConsoleError::new(
                ConsoleErrorKind::PermissionDenied,
                "permission denied: log in as user admin with the token as password (token_file in \
                 [admin])",
            ));
        }
        let message = match statement {
            ConsoleCommand::Show(show) => {
                return Ok(CommandResult::Table(Table {
                    columns: show.column_names(),
                    rows: self.rows(&[*show]).await?.concat(),
                }));
            }
            ConsoleCommand::Query(query) => {
                return Ok(CommandResult::Table(Table {
                    columns: query.plan.columns.clone(),
                    rows: self.query(query).await?,
                }));
            }
            ConsoleCommand::Help => return Ok(CommandResult::Message(show::HELP.to_owned())),
            ConsoleCommand::Use(schema) => {
                self.user.schema = Some(schema.clone());
                return Ok(CommandResult::Nothing);
            }
            ConsoleCommand::Empty | ConsoleCommand::NoOp => return Ok(CommandResult::Nothing),
            ConsoleCommand::Reload => self.send(Command::Reload).await?,
            ConsoleCommand::Pause(scope) => self.pause(scope).await?,
            ConsoleCommand::Resume(scope) => {
                let resume = |service, database| Command::Resume { service, database };
                self.send_to_services(scope, resume).await?
            }
            ConsoleCommand::Reconnect(scope) => {
                let reconnect = |service, database| Command::Reconnect { service, database };
                self.send_to_services(scope, reconnect).await?
            }
            ConsoleCommand::Kill(scope) => {
                // As in PgBouncer, KILL also pauses: clients must not reconnect immediately.
                let pause = |service, database| Command::Pause { service, database };
                self.send_to_services(scope, pause).await?;
                let kill = |service, database| Command::Kill {
                    service,
                    which: KillWhich::Database(database),
                };
                self.send_to_services(scope, kill).await?
            }
            ConsoleCommand::KillClient(id) => {
                let kill = |service, _| Command::Kill {
                    service,
                    which: KillWhich::Client(*id),
                };
                self.send_to_services(&None, kill).await?
            }
        };
        Ok(CommandResult::Message(message))
    }

    /// Parses and plans a statement.
    pub(super) async fn prepare(&self, text: &str) -> Result<ConsoleCommand, ConsoleError> {
        let mut statement = ConsoleCommand::parse(text, self.dialect)?;
        if let ConsoleCommand::Query(query) = &mut statement {
            let unplanned = query.clone();
            query.plan = self
                .console
                .select_runner
                .run(move || sqlite::plan(&unplanned))
                .await?;
        }
        Ok(statement)
    }

    async fn query(&self, query: &Query) -> Result<Vec<Row>, ConsoleError> {
        let reads = &query.plan.reads;
        let rows = self.rows(reads).await?;
        let tables: Vec<_> = reads.iter().copied().zip(rows).collect();
        let values: Vec<_> = query
            .values
            .iter()
            .map(|one| self.value(one.value))
            .collect();
        let query = query.clone();
        let run = move || sqlite::run(&query, &values, &tables);
        self.console.select_runner.run(run).await
    }

    async fn rows(&self, shows: &[Show]) -> Result<Vec<Vec<Row>>, ConsoleError> {
        show::rows(shows, self.console).await
    }

    fn value(&self, value: Value) -> sqlite::Value {
        let user = &self.user;
        match value {
            Value::Variable(text) => text
                .parse()
                .map_or_else(|_| text.to_owned().into(), sqlite::Value::Integer),
            Value::Version => self.dialect.version().to_owned().into(),
            Value::Schema => user.schema.clone().into(),
            Value::User => user.user.clone().into(),
            Value::Connection => user.connection.into(),
        }
    }

    async fn send(&self, command: Command) -> Result<String, ConsoleError> {
        into_result(self.console.control.command(command).await?)
    }

    /// Sends a command to all services in the scope. Succeeds if at least one service succeeds.
    async fn send_to_services(
        &self,
        scope: &CommandScope,
        command: impl Fn(String, Option<String>) -> Command,
    ) -> Result<String, ConsoleError> {
        let (services, database) = self.services(scope).await?;
        let (mut done, mut failed) = (Vec::new(), None);
        for service in services {
            match self.send(command(service, database.clone())).await {
                Ok(message) => done.push(message),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if done.is_empty() => Err(error),
            _ => Ok(done.join("; ")),
        }
    }

    async fn pause(&self, scope: &CommandScope) -> Result<String, ConsoleError> {
        let (services, database) = self.services(scope).await?;
        let control = self.console.control.clone();
        // The client may disconnect: a pause that does not complete must still be undone.
        let pausing = tokio::spawn(async move {
            let database = database.as_deref();
            control.pause_all(&services, database, PAUSE_LIMIT).await
        });
        into_result(pausing.await.map_err(|_| Stopped)??)
    }

    /// Returns the services in the scope, and the database. `service/database` means one service.
    async fn services(
        &self,
        scope: &CommandScope,
    ) -> Result<(Vec<String>, Option<String>), ConsoleError> {
        let selection = StatusSelection::without_servers();
        let status = self.console.control.status(selection).await?;
        let pooled = status.services.iter().filter(|one| one.database.is_some());
        let names: Vec<String> = pooled.map(|one| one.name.clone()).collect();
        if names.is_empty() {
            let message = "no service has a connection pool";
            return Err(ConsoleError::new(ConsoleErrorKind::CommandFailed, message));
        }
        let Some(name) = scope else {
            return Ok((names, None));
        };
        match name.split_once('/') {
            Some((service, database)) if names.iter().any(|one| one == service) => {
                let database = (!database.is_empty()).then(|| database.to_owned());
                Ok((vec![service.to_owned()], database))
            }
            _ => Ok((
                services_with_database_pools(name, &status)?,
                Some(name.clone()),
            )),
        }
    }
}

/// Returns the services whose pools are per database, or an error if there is none.
fn services_with_database_pools(
    database: &str,
    status: &Status,
) -> Result<Vec<String>, ConsoleError> {
    let services = status.services.iter();
    let meant = services.filter(|one| one.has_database_pools());
    let names: Vec<String> = meant.map(|one| one.name.clone()).collect();
    match names.is_empty() {
        false => Ok(names),
        true => Err(ConsoleError::new(
            ConsoleErrorKind::CommandFailed,
            format!(
                "cannot act on database {database:?}: the pools of MySQL services are not per \
                 database. Name a service instead, for example PAUSE orders/ (the slash is \
                 required)"
            ),
        )),
    }
}

fn into_result(reply: Reply) -> Result<String, ConsoleError> {
    match reply.ok {
        true => Ok(reply.message),
        false => Err(ConsoleError::new(
            ConsoleErrorKind::CommandFailed,
            reply.message,
        )),
    }
}
