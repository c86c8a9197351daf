//! Handles the requests and commands for a service that pools server connections.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::guard::RejectedRequest;
use super::routes::{answer, read_json, replied};
use crate::status::{Command, ControlHandle, KillWhich, Stopped};

/// Default limit for the wait of a pause for running transactions.
const PAUSE_LIMIT_MS: u64 = 20_000;

/// Maximum of that limit: an admin connection lives for one minute.
const PAUSE_LIMIT_MS_MAX: u64 = 50_000;

pub(super) async fn clients(
    State(control): State<ControlHandle>,
    Path(service): Path<String>,
) -> Result<Response, RejectedRequest> {
    shown(control.connections(&service).await?)
}

pub(super) async fn digests(
    State(control): State<ControlHandle>,
    Path(service): Path<String>,
) -> Result<Response, RejectedRequest> {
    shown(control.digests(&service).await?)
}

fn shown(found: Result<impl Serialize, String>) -> Result<Response, RejectedRequest> {
    let refuse = |why| RejectedRequest::new(StatusCode::UNPROCESSABLE_ENTITY, why);
    Ok(Json(found.map_err(refuse)?).into_response())
}

pub(super) async fn pause(
    State(control): State<ControlHandle>,
    Path(service): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let PauseBody { database, limit_ms } = read_json(body).await?;
    let limit_ms = limit_ms.unwrap_or(PAUSE_LIMIT_MS);
    if limit_ms > PAUSE_LIMIT_MS_MAX {
        let message = format!("limit_ms {limit_ms} exceeds the maximum of {PAUSE_LIMIT_MS_MAX}");
        return Err(RejectedRequest::new(StatusCode::BAD_REQUEST, message));
    }
    let limit = Duration::from_millis(limit_ms);
    // The client may disconnect: a pause that does not complete must still be undone.
    let pausing =
        tokio::spawn(async move { control.pause(&service, database.as_deref(), limit).await });
    let reply = pausing.await.map_err(|_| Stopped)??;
    Ok(replied(reply))
}

pub(super) async fn resume(
    State(control): State<ControlHandle>,
    Path(service): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let DatabaseBody { database } = read_json(body).await?;
    answer(&control, Command::Resume { service, database }).await
}

pub(super) async fn reconnect(
    State(control): State<ControlHandle>,
    Path(service): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let DatabaseBody { database } = read_json(body).await?;
    answer(&control, Command::Reconnect { service, database }).await
}

pub(super) async fn kill(
    State(control): State<ControlHandle>,
    Path(service): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let body: KillBody = read_json(body).await?;
    let which = match (body.client, body.server_pid, body.database) {
        (Some(id), None, None) => KillWhich::Client(id),
        (None, Some(pid), None) => KillWhich::ServerPid(pid),
        (None, None, Some(database)) => KillWhich::Database(Some(database)),
        _ => {
            let message = "specify one of `client`, `server_pid` and `database`";
            return Err(RejectedRequest::new(StatusCode::BAD_REQUEST, message));
        }
    };
    answer(&control, Command::Kill { service, which }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    database: Option<String>,
    limit_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DatabaseBody {
    database: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillBody {
    client: Option<u64>,
    server_pid: Option<u32>,
    database: Option<String>,
}
