//! Checks the account and the TLS settings of health checks.

use evenkeel_monitor::probe::TlsUse;

use crate::plan::{Address, ProbeTls, ServicePlan, TlsMode};
use crate::problem::Problems;
use crate::service::Draft;

/// Runs the checks of health checks.
pub(super) fn check(draft: &Draft, problems: &mut Problems) {
    account(draft, problems);
    unused_tables(draft, problems);
    contradiction(draft, problems);
    unix_sockets(draft, problems);
}

fn logs_in(plan: &ServicePlan) -> bool {
    plan.health.probe_protocol().is_some()
}

fn account(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    if logs_in(plan) && spans.upstream.monitor.is_none() && plan.monitor.is_none() {
        let probe = plan.health.probe_name();
        let message = format!("`probe = \"{probe}\"` requires an account to log in with");
        let help = format!(
            "add {} with `user` and `password_file`, or use `probe = \"tcp\"`",
            spans.upstream.home.title("monitor")
        );
        problems.error(&spans.upstream.probe, "E_NO_MONITOR", message, help);
    }
}

/// Reports an account and TLS settings that neither the probe nor the protocol uses.
fn unused_tables(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    if logs_in(plan) || plan.database().is_some() {
        return;
    }
    let home = spans.upstream.home;
    let probe = plan.health.probe_name();
    let health = home.title("health");
    if spans.upstream.monitor.is_some() {
        let title = home.title("monitor");
        let message = format!("{title} has no effect: `probe = \"{probe}\"` does not log in");
        let help = format!("set `probe = \"mysql\"` or `\"postgres\"` in {health}, or remove it");
        problems.warning(&spans.upstream.monitor, "W_NO_EFFECT", message, help);
    }
    if spans.upstream.server_tls.is_some() && !starts_tls(plan) {
        let title = home.title("server_tls");
        let message = format!("{title} has no effect: `probe = \"{probe}\"` does not use TLS");
        let help = format!("set `tls = \"on\"` in {health}, or remove it");
        problems.warning(&spans.upstream.server_tls, "W_NO_EFFECT", message, help);
    }
}

/// Returns whether a probe that does not log in may use TLS.
fn starts_tls(plan: &ServicePlan) -> bool {
    match (plan.health.tls, plan.health.tls_use()) {
        (ProbeTls::On, _) | (ProbeTls::Auto, TlsUse::AsSessions) => true,
        (ProbeTls::Auto, TlsUse::IfConfigured) => plan.server_tls.mode.is_some(),
        (ProbeTls::Auto, TlsUse::Never) | (ProbeTls::Off, _) => false,
    }
}

fn contradiction(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    if plan.health.tls == ProbeTls::On && plan.server_tls.mode == Some(TlsMode::Off) {
        let title = spans.upstream.home.title("server_tls");
        let message = format!("`tls = \"on\"`, but `mode = \"off\"` in {title} disables TLS");
        let help = "set another `mode`, such as `verify`, or remove `tls`";
        problems
            .error(&spans.upstream.probe_tls, "E_BOTH", message, help)
            .with_other(&spans.upstream.server_tls, "the other table is");
    }
}

/// Reports settings that have no effect on servers with a Unix socket.
fn unix_sockets(Draft { plan, spans }: &Draft, problems: &mut Problems) {
    let is_unix = |address: &&Address| matches!(address, Address::Unix(_));
    let mut addresses = plan.servers.iter().map(|server| &server.address);
    let Some(socket) = addresses.find(is_unix) else {
        return;
    };
    let keys = [
        (
            "port",
            plan.health.port.is_some(),
            &spans.upstream.probe_port,
        ),
        (
            "tls",
            plan.health.tls == ProbeTls::On,
            &spans.upstream.probe_tls,
        ),
    ];
    for (key, _, span) in keys.into_iter().filter(|(_, is_set, _)| *is_set) {
        let message = format!(
            "`{key}` has no effect on {socket}: probes of a Unix socket use neither a port nor TLS"
        );
        let help = format!("remove `{key}`, or give the server a TCP address");
        problems.warning(span, "W_NO_EFFECT", message, help);
    }
}
