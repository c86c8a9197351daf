//! Decides before any route whether a request is permitted. Every refusal states the reason and
//! advice.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

use super::{AdminSettings, AdminTransport};
use crate::status::Reply;

/// Headers by which a proxy on this machine indicates that the client is on another machine.
const FORWARDED: [HeaderName; 2] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
];

/// Response to a request that is not permitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RejectedRequest {
    status: StatusCode,
    message: String,
}

impl RejectedRequest {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }
}

impl IntoResponse for RejectedRequest {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Reply::failed(self.message))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = header::HeaderValue::from_static("Bearer realm=\"evenkeel\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Middleware before every route: rejects requests that are not permitted.
pub(super) async fn check(
    State(settings): State<Arc<AdminSettings>>,
    request: Request,
    next: Next,
) -> Response {
    match judge(&settings, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let (method, path) = (request.method(), request.uri().path());
            let transport = request.extensions().get::<AdminTransport>();
            tracing::debug!(
                "admin: refused {method} {path} from {transport:?}: {}",
                refusal.message
            );
            refusal.into_response()
        }
    }
}

fn judge(settings: &AdminSettings, request: &Request) -> Result<(), RejectedRequest> {
    let is_change = match *request.method() {
        Method::GET | Method::HEAD => false,
        Method::POST => true,
        _ => {
            let message = "method not allowed, use GET, HEAD or POST";
            return Err(RejectedRequest::new(
                StatusCode::METHOD_NOT_ALLOWED,
                message,
            ));
        }
    };
    // Without a known transport no request is permitted: the connection's code did not set it.
    let transport = request
        .extensions()
        .get::<AdminTransport>()
        .ok_or_else(|| {
            RejectedRequest::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "request from an unknown listener",
            )
        })?;
    if let AdminTransport::Tcp { peer } = transport {
        let headers = request.headers();
        let host = host_of(headers, request.uri(), settings)?;
        origin_matches(headers, host)?;
        let is_near = peer.ip().to_canonical().is_loopback() && !forwarded(headers);
        if is_change || !is_near {
            token_matches(headers, settings, is_change)?;
        }
    }
    if is_change {
        is_json(request.headers())?;
    }
    Ok(())
}

/// Returns the `Host` if it is permitted. DNS rebinding makes the name of another site point to
/// this machine, so that a browser trusts its page, but the page cannot hide that name.
fn host_of<'a>(
    headers: &'a HeaderMap,
    uri: &'a Uri,
    settings: &AdminSettings,
) -> Result<&'a str, RejectedRequest> {
    let host = single(headers, &header::HOST)?
        .ok_or_else(|| RejectedRequest::new(StatusCode::FORBIDDEN, "missing Host header"))?;
    let target = uri.authority().map_or(host, |authority| authority.as_str());
    for name in [host, target] {
        if !host_is_ours(name, settings) {
            let message = format!(
                "Host {name:?} is not allowed: use the IP address or localhost, or add the name to \
                 allowed_hosts in [admin]"
            );
            return Err(RejectedRequest::new(StatusCode::FORBIDDEN, message));
        }
    }
    Ok(host)
}

fn host_is_ours(host: &str, settings: &AdminSettings) -> bool {
    let name = without_port(host);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || settings
            .allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns an error if `Origin`, with which a browser names the site of a script, differs from the
/// host.
fn origin_matches(headers: &HeaderMap, host: &str) -> Result<(), RejectedRequest> {
    let Some(origin) = single(headers, &header::ORIGIN)? else {
        return Ok(());
    };
    let site = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    if site.is_some_and(|site| site.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    let message = format!("cross-origin request from {origin:?} refused");
    Err(RejectedRequest::new(StatusCode::FORBIDDEN, message))
}

fn forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(name))
}

fn token_matches(
    headers: &HeaderMap,
    settings: &AdminSettings,
    is_change: bool,
) -> Result<(), RejectedRequest> {
    let subject = if is_change {
        "changes over TCP require"
    } else {
        "remote access requires"
    };
    let Some(token) = settings.token.as_deref().filter(|token| !token.is_empty()) else {
        let message = format!(
            "{subject} a token and none is configured: set token_file in [admin], or use the Unix \
             socket (evenkeel status, drain, …) on that machine"
        );
        return Err(RejectedRequest::new(StatusCode::FORBIDDEN, message));
    };
    let offered = single(headers, &header::AUTHORIZATION)?.and_then(bearer);
    match offered {
        Some(offered) if offered.as_bytes().ct_eq(token.as_bytes()).into() => Ok(()),
        Some(_) => Err(RejectedRequest::new(
            StatusCode::UNAUTHORIZED,
            "invalid token",
        )),
        None => {
            let message = format!("{subject} the token: send Authorization: Bearer TOKEN");
            Err(RejectedRequest::new(StatusCode::UNAUTHORIZED, message))
        }
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// Returns an error if the body is not JSON. A form of another site can send text, but a browser
/// asks for permission before it sends JSON.
fn is_json(headers: &HeaderMap) -> Result<(), RejectedRequest> {
    let kind = single(headers, &header::CONTENT_TYPE)?.unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = format!("POST requires content-type: application/json, not {kind:?}");
    Err(RejectedRequest::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        message,
    ))
}

/// Returns a header that must not occur twice: another reader might use the other value.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, RejectedRequest> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => {
            let message = format!("header {name} is duplicated or not plain text");
            Err(RejectedRequest::new(StatusCode::FORBIDDEN, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> AdminSettings {
        AdminSettings {
            token: None,
            allowed_hosts: vec!["lb.example.org".into()],
        }
    }

    #[test]
    fn hosts_that_cannot_be_rebound_are_ours() {
        for host in [
            "127.0.0.1:9000",
            "[::1]:9000",
            "[::1]",
            "10.1.2.3",
            "LocalHost:80",
        ] {
            assert!(host_is_ours(host, &settings()), "{host}");
        }
        assert!(host_is_ours("LB.example.org:9000", &settings()));
    }

    #[test]
    fn other_names_are_not_ours() {
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:9000",
            "localhost.evil",
            "",
            ":9000",
        ] {
            assert!(!host_is_ours(host, &settings()), "{host}");
        }
    }

    #[test]
    fn an_origin_must_be_the_host_itself() {
        let check = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, header::HeaderValue::from_static(origin));
            origin_matches(&headers, "127.0.0.1:9000").is_ok()
        };
        assert!(check("http://127.0.0.1:9000"));
        for origin in [
            "null",
            "http://127.0.0.1:9001",
            "http://127.0.0.1:9000.evil",
            "evil",
        ] {
            assert!(!check(origin), "{origin}");
        }
    }
}
