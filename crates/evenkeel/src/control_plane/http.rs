//! Builds the snapshot of an HTTP service for the data plane.

pub(super) mod report;
mod routes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::plan::{
    self, AccessLog, AccessLogPlan, Http2, HttpLimitsPlan, HttpPlan, HttpTimesPlan,
    NamedCertificate, PemFile, RetryPlan,
};
use evenkeel_policy::connection_pool::{PoolSettings, Preference};
use evenkeel_policy::server_set::Member;
use evenkeel_proxy::Server;
use evenkeel_proxy::access_log::{AccessLogFormat, AccessLogSettings};
use evenkeel_proxy::database::ConnectionLimits;
use evenkeel_proxy::http::{
    HttpService, HttpSizeLimits, HttpSnapshot, HttpTimeLimits, RetrySettings, ServerHttp2,
};

use evenkeel_tls::{
    Authorities, HttpAcceptor, HttpProtocols, NamedIdentity, Rank, SetupError, TicketKeys,
    TlsIdentity,
};

pub(super) use self::routes::HttpParts;

use super::ControlPlane;
use super::acme::Certificates;
use super::database::snapshot::unlimited;
use super::service::ManagedService;

/// Returns the state that the workers of a new service share.
pub(super) fn new_service(plan: &HttpPlan, workers: usize) -> Arc<HttpService> {
    Arc::new(HttpService::new(workers, pool_settings(plan)))
}

/// Returns the TLS settings towards clients, with the certificates that have come by ACME. `None`:
/// off.
pub(super) fn acceptor(
    service: &str,
    plan: &HttpPlan,
    ordered: &Certificates,
    keys: &Arc<TicketKeys>,
) -> Result<Option<Arc<HttpAcceptor>>, SetupError> {
    let http2 = plan.clients.http2;
    let Some(plan) = &plan.tls else {
        return Ok(None);
    };
    let files = plan.certificates.iter().map(named_identity);
    // The first one is also that of other names: that of a file, if there is one.
    let ordered = plan.acme.iter().filter_map(|name| ordered.get(name));
    let ordered = ordered.map(|identity| {
        Ok(NamedIdentity {
            identity: identity.clone(),
            client_ca: None,
            rank: Rank::Ordered,
        })
    });
    let identities: Vec<NamedIdentity> = files.chain(ordered).collect::<Result<_, SetupError>>()?;
    let client_ca = authorities(plan.client_ca.as_ref())?;
    let protocols = match http2 {
        Http2::Off => HttpProtocols::Http1,
        Http2::Tls | Http2::All => HttpProtocols::Http1And2,
    };
    let client_ca = client_ca.as_ref();
    let acceptor = HttpAcceptor::new(service, &identities, client_ca, protocols, keys)?;
    Ok(Some(Arc::new(acceptor)))
}

fn named_identity(certificate: &NamedCertificate) -> Result<NamedIdentity, SetupError> {
    let own = &certificate.own;
    let texts = [&own.certificate, &own.key].map(|file| file.text.expose().as_bytes());
    Ok(NamedIdentity {
        identity: TlsIdentity::from_pem("[service.tls]", texts[0], texts[1])?,
        client_ca: authorities(certificate.client_ca.as_ref())?,
        rank: Rank::File,
    })
}

fn authorities(file: Option<&PemFile>) -> Result<Option<Authorities>, SetupError> {
    file.map(|file| Authorities::from_pem(file.text.expose().as_bytes()))
        .transpose()
}

pub(super) fn pool_settings(plan: &HttpPlan) -> PoolSettings {
    let pool = &plan.pool;
    PoolSettings {
        min_idle: pool.min_idle,
        idle_ms: pool.idle_ms,
        lifetime_ms: pool.lifetime_ms,
        wait_ms: pool.wait_ms,
        queue_length: usize::try_from(pool.queue_length).unwrap_or(usize::MAX),
        preference: Preference::New,
        ..PoolSettings::default()
    }
}

/// Makes the members' load the number of requests in flight: the connections to a server are shared
/// by requests, and idle ones say nothing about its load.
pub(super) fn balance_by_requests(
    shared: &HttpService,
    members: &mut [Member],
    servers: &[Arc<Server>],
) {
    for (member, server) in members.iter_mut().zip(servers) {
        member.load = Arc::clone(&shared.server(server.id).load);
    }
}

impl ControlPlane {
    /// Builds the HTTP part of a service's snapshot.
    pub(super) fn http_snapshot(
        &self,
        service: &ManagedService,
        (plan, shared): (&HttpPlan, &HttpService),
        members: &[Member],
        servers: &[Arc<Server>],
    ) -> HttpSnapshot {
        let parts = service.http_parts.as_ref();
        let sticky = plan.sticky.as_ref().zip(parts);
        HttpSnapshot {
            connection_limits: connection_limits(plan),
            time_limits: time_limits(&plan.times),
            size_limits: size_limits(&plan.limits),
            retry: retry(&plan.retry),
            routes: parts.and_then(|parts| parts.routes.clone()),
            clients: parts
                .map(|parts| Arc::clone(&parts.clients))
                .unwrap_or_default(),
            sticky: sticky.map(|(sticky, parts)| routes::sticky_cookie(sticky, parts, members)),
            servers: servers.iter().map(|one| shared.server(one.id)).collect(),
            access_log: access_log(&plan.access_log),
            tls: service.acceptor.http().cloned().flatten(),
            server_http2: match plan.clients.server_http2 {
                plan::ServerHttp2::Off => ServerHttp2::Off,
                plan::ServerHttp2::Tls => ServerHttp2::Tls,
                plan::ServerHttp2::All => ServerHttp2::All,
            },
            challenges: self.acme.challenges(),
            server_encryption: self.encryption(service),
        }
    }
}

fn retry(plan: &RetryPlan) -> RetrySettings {
    RetrySettings {
        replay: plan.replay,
        budget_percent: plan.budget_percent,
        body_hold_bytes: usize::try_from(plan.body_hold_bytes).unwrap_or(usize::MAX),
    }
}

fn connection_limits(plan: &HttpPlan) -> ConnectionLimits {
    ConnectionLimits {
        pool: unlimited(plan.pool.size),
        service: u32::MAX,
        user: u32::MAX,
        database: u32::MAX,
        users: HashMap::new(),
        databases: HashMap::new(),
    }
}

fn time_limits(times: &HttpTimesPlan) -> HttpTimeLimits {
    HttpTimeLimits {
        header: Duration::from_millis(times.header_ms),
        first_byte: Duration::from_millis(times.first_byte_ms),
        keepalive: Duration::from_millis(times.keepalive_ms),
        request: Duration::from_millis(times.request_ms),
        body_rate_min: u64::from(times.body_rate_bytes_min),
        body_idle: Duration::from_millis(times.body_idle_ms),
        tunnel_idle: Duration::from_millis(times.tunnel_idle_ms),
    }
}

fn size_limits(limits: &HttpLimitsPlan) -> HttpSizeLimits {
    HttpSizeLimits {
        head: usize::try_from(limits.head_bytes_max).unwrap_or(usize::MAX),
        fields: usize::try_from(limits.fields_max).unwrap_or(usize::MAX),
        body: body_bytes(limits.body_bytes_max),
    }
}

/// Returns a limit of a body as the data plane has it.
fn body_bytes(bytes_max: u64) -> u64 {
    match bytes_max {
        0 => u64::MAX,
        bytes => bytes,
    }
}

fn access_log(plan: &AccessLogPlan) -> Option<AccessLogSettings> {
    let format = match plan.format {
        AccessLog::Off => return None,
        AccessLog::Json => AccessLogFormat::Json,
        AccessLog::Combined => AccessLogFormat::Combined,
    };
    Some(AccessLogSettings {
        format,
        masks_query: plan.masks_query,
    })
}
