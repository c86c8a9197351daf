//! Implements the commands for services that pool server connections: `pools`, `clients`,
//! `digests`, `pause`, `resume`, `reconnect`, `kill`.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::ProcessArgs;
use super::requests::{client, command, fail, print, service_query, url_encoded};
use super::table::{http, pools};
use crate::client::{Client, ClientError};

#[derive(Debug, Args)]
pub(super) struct ServiceArgs {
    /// Service name.
    service: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(super) struct ClientsArgs {
    #[command(flatten)]
    of: ServiceArgs,
    /// Only clients whose program has this name (application_name, program_name).
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct DatabaseArgs {
    /// Service name.
    service: String,
    /// Database of the service (PostgreSQL only) [default: all].
    database: Option<String>,
    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    target: DatabaseArgs,
    /// Time to wait for running transactions, at most 50000 [default: 20000].
    #[arg(long, value_name = "MILLISECONDS")]
    limit_ms: Option<u64>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(super) struct KillArgs {
    /// Service name.
    service: String,
    /// Client id, as shown by `evenkeel clients`.
    #[arg(group = "which")]
    id: Option<u64>,
    /// Client that uses this server process (pid in pg_stat_activity).
    #[arg(long, value_name = "PID", group = "which")]
    server_pid: Option<u32>,
    /// All clients of this database.
    #[arg(long, value_name = "NAME", group = "which")]
    database: Option<String>,
    #[command(flatten)]
    process: ProcessArgs,
}

pub(super) fn pools(args: &ServiceArgs) -> ExitCode {
    let Some(client) = client(&args.process) else {
        return ExitCode::FAILURE;
    };
    let status = match client.status(&service_query(&args.service)) {
        Ok(Ok(status)) => status,
        Ok(Err(message)) => return fail(&message),
        Err(error) => return fail(&error.to_string()),
    };
    let Some(service) = status.services.first() else {
        return fail("the status has no service");
    };
    match (&service.database, &service.http) {
        (Some(pooled), _) if args.json => print(&json!(pooled).to_string()),
        (Some(pooled), _) => print(&pools::rendered(pooled)),
        (None, Some(http)) if args.json => print(&json!(http).to_string()),
        (None, Some(http)) => print(&http::rendered(http, &service.rates)),
        (None, None) => fail(&format!(
            "service {:?} does not pool server connections",
            args.service
        )),
    }
}

pub(super) fn clients(args: &ClientsArgs) -> ExitCode {
    let query = |client: &Client, service: &str| {
        let mut found = client.connections(service)?;
        if let (Ok(connections), Some(name)) = (&mut found, &args.application) {
            connections.clients.retain(|one| one.application == *name);
            // They are no client's.
            connections.idle.clear();
        }
        Ok(found)
    };
    show(&args.of, query, pools::clients)
}

pub(super) fn digests(args: &ServiceArgs) -> ExitCode {
    show(args, Client::digests, |digests| pools::digests(digests))
}

/// Response of the running process, or the message of a refusal.
type Answer<T> = Result<Result<T, String>, ClientError>;

fn show<T: Serialize>(
    args: &ServiceArgs,
    query: impl FnOnce(&Client, &str) -> Answer<T>,
    rendered: fn(&T) -> String,
) -> ExitCode {
    let Some(client) = client(&args.process) else {
        return ExitCode::FAILURE;
    };
    match query(&client, &url_encoded(&args.service)) {
        Ok(Ok(shown)) if args.json => print(&json!(shown).to_string()),
        Ok(Ok(shown)) => print(&rendered(&shown)),
        Ok(Err(why)) => fail(&why),
        Err(error) => fail(&error.to_string()),
    }
}

pub(super) fn pause(args: &PauseArgs) -> ExitCode {
    let body = json!({ "database": args.target.database, "limit_ms": args.limit_ms });
    send_command(&args.target.process, &args.target.service, "pause", &body)
}

pub(super) fn resume(args: &DatabaseArgs) -> ExitCode {
    let body = json!({ "database": args.database });
    send_command(&args.process, &args.service, "resume", &body)
}

pub(super) fn reconnect(args: &DatabaseArgs) -> ExitCode {
    let body = json!({ "database": args.database });
    send_command(&args.process, &args.service, "reconnect", &body)
}

pub(super) fn kill(args: &KillArgs) -> ExitCode {
    let body = json!({
        "client": args.id,
        "server_pid": args.server_pid,
        "database": args.database,
    });
    send_command(&args.process, &args.service, "kill", &body)
}

fn send_command(process: &ProcessArgs, service: &str, verb: &str, body: &Value) -> ExitCode {
    let path = format!("/api/v1/services/{}/{verb}", url_encoded(service));
    command(process, &path, body)
}
