//! Lists the metrics: name, help, unit, kind, and the value's source in the status.

use std::fmt;

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{BYTES, SECONDS};
use crate::status::{
    CertificateStatus, RoleName, ServerState, ServerStatus, ServiceState, ServiceStatus, Status,
};

/// A value and the kind of its family.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    /// Counter.
    Count(u64),
    /// Counter with fractions.
    Sum(f64),
    /// Gauge.
    Now(f64),
}
use Value::{Count, Now};

/// Receives each sample: labels in addition to those of the object, and the value.
pub(super) type Emit<'a> = &'a mut dyn FnMut(&[(&str, &str)], Value) -> fmt::Result;

type Samples<T> = fn(&T, Emit) -> fmt::Result;

/// A metric of an object `T`.
pub(super) struct Family<T> {
    /// Name without the unit and `_total`, which the encoder appends.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) kind: MetricType,
    pub(super) samples: Samples<T>,
}

pub(super) const fn counter<T>(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    samples: Samples<T>,
) -> Family<T> {
    Family {
        name,
        help,
        unit,
        kind: MetricType::Counter,
        samples,
    }
}

pub(super) const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    samples: Samples<T>,
) -> Family<T> {
    Family {
        name,
        help,
        unit,
        kind: MetricType::Gauge,
        samples,
    }
}

/// Metrics of the process.
pub(super) static PROCESS: &[Family<Status>] = &[
    gauge(
        "evenkeel_cluster_has_primary",
        "1 if a server of the cluster accepts writes",
        None,
        |status, emit| {
            for cluster in &status.clusters {
                let services = cluster.services.join(",");
                let has = one_if(cluster.primary.is_some());
                emit(&[("services", &services)], Now(has))?;
            }
            Ok(())
        },
    ),
    gauge(
        "evenkeel_certificate_expiry_timestamp",
        "End of the validity of a certificate that came by ACME, Unix time; absent without one",
        SECONDS,
        |status, emit| {
            for one in certificates(status) {
                if let Some(expires_ms) = one.expires_at_unix_ms {
                    emit(&[("name", &one.name)], Now(seconds_from_ms(expires_ms)))?;
                }
            }
            Ok(())
        },
    ),
    gauge(
        "evenkeel_certificate_failures",
        "Failed orders of a certificate by ACME since the last one that came",
        None,
        |status, emit| {
            for one in certificates(status) {
                emit(&[("name", &one.name)], Now(f64::from(one.failures)))?;
            }
            Ok(())
        },
    ),
    gauge(
        "evenkeel_process_start_timestamp",
        "Start time of the process, Unix time",
        SECONDS,
        |status, emit| emit(&[], Now(seconds_from_ms(status.started_at_unix_ms))),
    ),
    gauge(
        "evenkeel_config_loaded_timestamp",
        "Time the current configuration was loaded, Unix time",
        SECONDS,
        |status, emit| emit(&[], Now(seconds_from_ms(status.config.loaded_at_unix_ms))),
    ),
    gauge(
        "evenkeel_config_problems",
        "Problems found in the config file at the last load",
        None,
        |status, emit| emit(&[], Now(status.config.problems.len() as f64)),
    ),
    counter(
        "evenkeel_process_requests_not_logged",
        "Requests missing in the access log because its writer was too slow",
        None,
        |status, emit| emit(&[], Count(status.engine.requests_not_logged_total)),
    ),
    gauge(
        "evenkeel_worker_sessions_current",
        "Client sessions per worker",
        None,
        |status, emit| {
            for (index, worker) in status.engine.workers.iter().enumerate() {
                emit(
                    &[("worker", &index.to_string())],
                    Now(worker.sessions as f64),
                )?;
            }
            Ok(())
        },
    ),
];

fn certificates(status: &Status) -> impl Iterator<Item = &CertificateStatus> {
    status.acme.iter().flat_map(|acme| &acme.certificates)
}

/// Metrics of each service. Every sample also has the label `service`.
pub(super) static SERVICE: &[Family<ServiceStatus>] = &[
    gauge(
        "evenkeel_service_state",
        "1 for the current state of the service, 0 for the others",
        None,
        |service, emit| {
            for state in ServiceState::ALL {
                emit(
                    &[("state", state.name())],
                    Now(one_if(service.state == state)),
                )?;
            }
            Ok(())
        },
    ),
    gauge(
        "evenkeel_service_servers",
        "Servers of the service by state",
        None,
        service_servers,
    ),
    gauge(
        "evenkeel_service_servers_omitted",
        "Servers without metrics of their own on this page",
        None,
        |service, emit| emit(&[], Now(service.server_counts.omitted as f64)),
    ),
    gauge(
        "evenkeel_service_sessions_current",
        "Open client sessions",
        None,
        |service, emit| emit(&[], Now(service.sessions.current as f64)),
    ),
    gauge(
        "evenkeel_service_sessions_limit",
        "Maximum number of client sessions (max_connections)",
        None,
        |service, emit| emit(&[], Now(service.sessions.limit as f64)),
    ),
    counter(
        "evenkeel_service_sessions",
        "Client sessions accepted",
        None,
        |service, emit| emit(&[], Count(service.sessions.total)),
    ),
    counter(
        "evenkeel_service_refusals",
        "Clients rejected",
        None,
        |service, emit| emit(&[], Count(service.sessions.refused)),
    ),
    gauge(
        "evenkeel_service_queue_current",
        "Clients in the queue",
        None,
        |service, emit| emit(&[], Now(service.queue.current as f64)),
    ),
    gauge(
        "evenkeel_service_queue_limit",
        "Maximum queue length (queue.length)",
        None,
        |service, emit| emit(&[], Now(service.queue.limit as f64)),
    ),
    gauge(
        "evenkeel_service_queue_wait_limit",
        "Maximum time in the queue (queue.wait_ms)",
        SECONDS,
        |service, emit| emit(&[], Now(seconds_from_ms(service.queue.wait_ms_limit))),
    ),
    counter(
        "evenkeel_service_queue_timeouts",
        "Clients that timed out in the queue",
        None,
        |service, emit| emit(&[], Count(service.queue.timed_out_total)),
    ),
    counter(
        "evenkeel_service_received",
        "Bytes received from clients",
        BYTES,
        |service, emit| emit(&[], Count(service.bytes.from_clients)),
    ),
    counter(
        "evenkeel_service_sent",
        "Bytes sent to clients",
        BYTES,
        |service, emit| emit(&[], Count(service.bytes.to_clients)),
    ),
    counter(
        "evenkeel_service_errors",
        "Errors by kind",
        None,
        service_errors,
    ),
    counter(
        "evenkeel_service_retries",
        "Connection attempts retried on another server",
        None,
        |service, emit| emit(&[], Count(service.retries_total)),
    ),
];

/// Metrics of each server. Every sample also has the labels `service` and `server`.
pub(super) static SERVER: &[Family<ServerStatus>] = &[
    gauge(
        "evenkeel_server_state",
        "1 for the current state of the server, 0 for the others",
        None,
        |server, emit| {
            for state in ServerState::ALL {
                emit(
                    &[("state", state.name())],
                    Now(one_if(server.state == state)),
                )?;
            }
            Ok(())
        },
    ),
    gauge(
        "evenkeel_server_role",
        "1 for the current role of the server, 0 for the others; absent if no service needs roles",
        None,
        |server, emit| {
            let Some(role) = &server.role else {
                return Ok(());
            };
            for name in RoleName::ALL {
                emit(&[("role", name.name())], Now(one_if(role.role == name)))?;
            }
            Ok(())
        },
    ),
    gauge(
        "evenkeel_server_replication_lag",
        "Replication lag; absent while unknown",
        SECONDS,
        |server, emit| {
            let lag_ms = server.role.as_ref().and_then(|role| role.lag_ms);
            lag_ms.map_or(Ok(()), |lag_ms| emit(&[], Now(seconds_from_ms(lag_ms))))
        },
    ),
    gauge(
        "evenkeel_server_sessions_current",
        "Open client sessions on the server",
        None,
        |server, emit| emit(&[], Now(server.sessions.current as f64)),
    ),
    gauge(
        "evenkeel_server_sessions_limit",
        "Maximum number of sessions on the server (max_connections); absent if not set",
        None,
        |server, emit| {
            server
                .sessions
                .limit
                .map_or(Ok(()), |limit| emit(&[], Now(limit as f64)))
        },
    ),
    counter(
        "evenkeel_server_sessions",
        "Client sessions sent to the server",
        None,
        |server, emit| emit(&[], Count(server.sessions.total)),
    ),
    gauge(
        "evenkeel_server_weight",
        "Configured weight",
        None,
        |server, emit| emit(&[], Now(f64::from(server.weight))),
    ),
    gauge(
        "evenkeel_server_weight_effective",
        "Effective weight, reduced during slow start",
        None,
        |server, emit| emit(&[], Now(server.weight_effective)),
    ),
    counter(
        "evenkeel_server_received",
        "Bytes from clients to the server",
        BYTES,
        |server, emit| emit(&[], Count(server.bytes.from_clients)),
    ),
    counter(
        "evenkeel_server_sent",
        "Bytes from the server to clients",
        BYTES,
        |server, emit| emit(&[], Count(server.bytes.to_clients)),
    ),
    counter(
        "evenkeel_server_errors",
        "Errors by kind",
        None,
        server_errors,
    ),
    gauge(
        "evenkeel_server_latency",
        "Smoothed time to first byte; absent before the first measurement",
        SECONDS,
        |server, emit| {
            server
                .latency_us
                .map_or(Ok(()), |latency| emit(&[], Now(latency as f64 / 1e6)))
        },
    ),
    gauge(
        "evenkeel_server_probe_success",
        "1 if the last probe succeeded; absent before the first probe",
        None,
        |server, emit| {
            server
                .last_probe
                .as_ref()
                .map_or(Ok(()), |probe| emit(&[], Now(one_if(probe.ok))))
        },
    ),
    gauge(
        "evenkeel_server_probe_duration",
        "Duration of the last probe; absent before the first probe",
        SECONDS,
        |server, emit| {
            let probe = server.last_probe.as_ref();
            probe.map_or(Ok(()), |probe| emit(&[], Now(probe.took_us as f64 / 1e6)))
        },
    ),
    gauge(
        "evenkeel_server_monitor_problem",
        "1 if the monitor itself fails, for example cannot log in",
        None,
        |server, emit| emit(&[], Now(one_if(server.monitor_problem.is_some()))),
    ),
];

fn service_servers(service: &ServiceStatus, emit: Emit) -> fmt::Result {
    let counts = &service.server_counts;
    let states = [
        (ServerState::Up, counts.up),
        (ServerState::Down, counts.down),
        (ServerState::Starting, counts.starting),
        (ServerState::Draining, counts.draining),
    ];
    for (state, count) in states {
        emit(&[("state", state.name())], Now(count as f64))?;
    }
    Ok(())
}

fn service_errors(service: &ServiceStatus, emit: Emit) -> fmt::Result {
    let errors = &service.errors;
    let kinds = [
        ("connect", errors.connect),
        ("no_server", errors.no_server),
        ("queue_full", errors.queue_full),
        ("queue_timeout", errors.queue_timeout),
        ("limit", errors.limit),
        ("proxy_header", errors.proxy_header),
        ("unrouted", errors.unrouted),
        ("flooding", errors.flooding),
        ("reset_by_client", errors.reset_by_client),
        ("reset_by_server", errors.reset_by_server),
        ("idle_timeout", errors.idle_timeout),
        ("terminated", errors.terminated),
    ];
    emit_kinds(&kinds, emit)
}

fn server_errors(server: &ServerStatus, emit: Emit) -> fmt::Result {
    let errors = &server.errors;
    let kinds = [
        ("connect", errors.connect),
        ("early_close", errors.early_close),
        ("reset", errors.reset),
    ];
    emit_kinds(&kinds, emit)
}

fn emit_kinds(kinds: &[(&str, u64)], emit: Emit) -> fmt::Result {
    for (kind, count) in kinds {
        emit(&[("kind", kind)], Count(*count))?;
    }
    Ok(())
}

fn one_if(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

pub(super) fn seconds_from_ms(ms: u64) -> f64 {
    ms as f64 / 1e3
}
