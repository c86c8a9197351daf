//! Defines the HTTP routes of the admin interface.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::guard::{self, RejectedRequest};
use super::{AdminSettings, AdminTransport, page, pools};
use crate::metrics;
use crate::status::{
    Command, ControlHandle, Question, Reply, RevocationReason, ServiceState, Status,
    StatusSelection, Stopped,
};

/// Maximum size of a body. The longest valid one has a few dozen bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Limit for the receipt of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum weight of a server.
const WEIGHT_MAX: u32 = 256;

pub(super) fn router(settings: AdminSettings, control: ControlHandle) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/style.css", get(page::style))
        .route("/app.js", get(page::script))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics_text))
        .route("/api/v1/status", get(status))
        .route("/api/v1/events", get(events))
        .route("/api/v1/explain", post(explain))
        .route("/api/v1/reload", post(reload))
        .route("/api/v1/upgrade", post(upgrade))
        .route("/api/v1/servers/{name}/drain", post(drain))
        .route("/api/v1/servers/{name}/undrain", post(undrain))
        .route("/api/v1/servers/{name}/weight", post(weight))
        .route("/api/v1/servers/{name}/primary", post(primary))
        .route("/api/v1/certificates/{name}/revoke", post(revoke))
        .route("/api/v1/services/{name}/clients", get(pools::clients))
        .route("/api/v1/services/{name}/digests", get(pools::digests))
        .route("/api/v1/services/{name}/pause", post(pools::pause))
        .route("/api/v1/services/{name}/resume", post(pools::resume))
        .route("/api/v1/services/{name}/reconnect", post(pools::reconnect))
        .route("/api/v1/services/{name}/kill", post(pools::kill))
        .fallback(async || RejectedRequest::new(StatusCode::NOT_FOUND, "not found"))
        .method_not_allowed_fallback(async || {
            let message = "method not allowed for this path: use GET to read, POST to change";
            RejectedRequest::new(StatusCode::METHOD_NOT_ALLOWED, message)
        })
        .layer(middleware::from_fn_with_state(
            Arc::new(settings),
            guard::check,
        ))
        .layer(middleware::from_fn(page::fence))
        .with_state(control)
}

async fn status(
    State(control): State<ControlHandle>,
    query: Result<Query<StatusSelection>, QueryRejection>,
) -> Result<Response, RejectedRequest> {
    Ok(Json(&*selected(&control, query).await?).into_response())
}

/// Returns the status of the services and servers that a query selects.
async fn selected(
    control: &ControlHandle,
    query: Result<Query<StatusSelection>, QueryRejection>,
) -> Result<Arc<Status>, RejectedRequest> {
    let Query(selection) = query.map_err(|error| {
        let message = format!(
            "the query may have `service` (a name) and `servers` (default, all or none): {error}"
        );
        RejectedRequest::new(StatusCode::BAD_REQUEST, message)
    })?;
    let service = selection.service.clone();
    let status = control.status(selection).await?;
    match service {
        Some(name) if status.services.is_empty() => {
            let message = format!("no service named {name:?}, see `evenkeel status`");
            Err(RejectedRequest::new(StatusCode::NOT_FOUND, message))
        }
        _ => Ok(status),
    }
}

async fn events(
    State(control): State<ControlHandle>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, RejectedRequest> {
    let Query(EventsQuery { after }) = query.map_err(|error| {
        let message = format!("`after` must be a whole number (?after=ID): {error}");
        RejectedRequest::new(StatusCode::BAD_REQUEST, message)
    })?;
    Ok(Json(control.events(after).await?).into_response())
}

async fn explain(
    State(control): State<ControlHandle>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let question: Question = read_json(body).await?;
    match control.explain(question).await? {
        Ok(explanation) => Ok(Json(explanation).into_response()),
        Err(why) => Err(RejectedRequest::new(StatusCode::UNPROCESSABLE_ENTITY, why)),
    }
}

async fn metrics_text(
    State(control): State<ControlHandle>,
    query: Result<Query<StatusSelection>, QueryRejection>,
) -> Result<Response, RejectedRequest> {
    let text = metrics::render(&selected(&control, query).await?);
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

async fn healthz(State(control): State<ControlHandle>) -> Result<Response, RejectedRequest> {
    let status = control.status(StatusSelection::without_servers()).await?;
    let serves = |state| matches!(state, ServiceState::Up | ServiceState::Degraded);
    let up = status
        .services
        .iter()
        .filter(|service| serves(service.state))
        .count();
    let message = format!("{up} of {} services accept clients", status.services.len());
    let (code, ok) = if up > 0 {
        (StatusCode::OK, true)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, false)
    };
    Ok((
        code,
        Json(Reply {
            ok,
            message,
            ..Reply::default()
        }),
    )
        .into_response())
}

async fn reload(
    State(control): State<ControlHandle>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let Empty {} = read_json(body).await?;
    answer(&control, Command::Reload).await
}

/// Starts an upgrade. Requires the Unix socket, and a token is not enough: only a user who could
/// start the program may choose which program runs.
async fn upgrade(
    State(control): State<ControlHandle>,
    Extension(transport): Extension<AdminTransport>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    if !matches!(transport, AdminTransport::Unix) {
        let message = "upgrades require the control socket: run `evenkeel upgrade` on the machine";
        return Err(RejectedRequest::new(StatusCode::FORBIDDEN, message));
    }
    let UpgradeBody {
        binary,
        limit_ms,
        end_draining,
    } = read_json(body).await?;
    let reply = control.upgrade(binary, limit_ms, end_draining).await?;
    let code = if reply.ok {
        StatusCode::OK
    } else {
        StatusCode::CONFLICT
    };
    Ok((code, Json(reply)).into_response())
}

async fn drain(
    State(control): State<ControlHandle>,
    Path(server): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let DrainBody { limit_ms } = read_json(body).await?;
    answer(&control, Command::Drain { server, limit_ms }).await
}

async fn undrain(
    State(control): State<ControlHandle>,
    Path(server): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let Empty {} = read_json(body).await?;
    answer(&control, Command::Undrain { server }).await
}

async fn weight(
    State(control): State<ControlHandle>,
    Path(server): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let WeightBody { weight } = read_json(body).await?;
    if weight > WEIGHT_MAX {
        let message = format!("weight {weight} exceeds the maximum of {WEIGHT_MAX}");
        return Err(RejectedRequest::new(StatusCode::BAD_REQUEST, message));
    }
    answer(&control, Command::Weight { server, weight }).await
}

async fn primary(
    State(control): State<ControlHandle>,
    Path(server): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let PrimaryBody { clear } = read_json(body).await?;
    answer(&control, Command::Primary { server, clear }).await
}

async fn revoke(
    State(control): State<ControlHandle>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, RejectedRequest> {
    let RevokeBody { reason, order } = read_json(body).await?;
    Ok(replied(control.revoke(name, reason, order).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevokeBody {
    #[serde(default)]
    reason: RevocationReason,
    #[serde(default = "yes")]
    order: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    #[serde(default)]
    after: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrimaryBody {
    #[serde(default)]
    clear: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpgradeBody {
    binary: Option<PathBuf>,
    limit_ms: Option<u64>,
    #[serde(default)]
    end_draining: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainBody {
    limit_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WeightBody {
    weight: u32,
}

/// Runs a command. A valid command that was not executed returns status 422.
pub(super) async fn answer(
    control: &ControlHandle,
    command: Command,
) -> Result<Response, RejectedRequest> {
    Ok(replied(control.command(command).await?))
}

pub(super) fn replied(reply: Reply) -> Response {
    let code = if reply.ok {
        StatusCode::OK
    } else {
        StatusCode::UNPROCESSABLE_ENTITY
    };
    (code, Json(reply)).into_response()
}

/// Returns the body, decoded from JSON. An empty body counts as `{}`.
pub(super) async fn read_json<T: DeserializeOwned>(body: Body) -> Result<T, RejectedRequest> {
    let collected =
        tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect());
    let bytes = match collected.await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("request body exceeds {BODY_BYTES_MAX} bytes");
            return Err(RejectedRequest::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Ok(Err(error)) => {
            let message = format!("cannot read request body: {error}");
            return Err(RejectedRequest::new(StatusCode::BAD_REQUEST, message));
        }
        Err(_) => {
            let message = "timed out reading request body";
            return Err(RejectedRequest::new(StatusCode::REQUEST_TIMEOUT, message));
        }
    };
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text).map_err(|error| {
        RejectedRequest::new(
            StatusCode::BAD_REQUEST,
            format!("invalid request body: {error}"),
        )
    })
}

impl From<Stopped> for RejectedRequest {
    fn from(stopped: Stopped) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, stopped.to_string())
    }
}
