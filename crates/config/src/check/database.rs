//! Checks services with a database protocol, and the peers of their cancel requests.

use super::reaches;
use crate::plan::{AuthSource, DatabasePlan, Listen, PeersPlan, PoolMode, Probe, SqlProtocol};
use crate::problem::{Problems, SourceSpan};
use crate::service::Draft;

/// Runs the checks of services with a database protocol.
pub(super) fn check(draft: &Draft, problems: &mut Problems) {
    if let Some(database) = draft.plan.database() {
        probe(draft, database.protocol, problems);
        accounts(draft, database, problems);
        certificates(draft, database, problems);
        cleartext(draft, database, problems);
        passwords(draft, database, problems);
    }
}

/// Checks that the probe uses the service's protocol, in which servers report their role.
fn probe(Draft { plan, spans }: &Draft, protocol: SqlProtocol, problems: &mut Problems) {
    let probe = plan.health.probe_name();
    let own = protocol.name();
    let table = spans.upstream.home.title("health");
    let help = format!("set `probe = \"{own}\"` in {table}, or remove `probe`");
    let sends_nothing = matches!(plan.health.probe, None | Some(Probe::Tcp(_)));
    if plan.health.probe_protocol() == Some(protocol) {
        return;
    }
    if !sends_nothing {
        let speaks = protocol.in_words();
        let message = format!("`probe = \"{probe}\"` does not support {speaks}");
        problems.error(&spans.upstream.probe, "E_ROLE_PROBE", message, help);
    } else if plan.servers.len() > 1 && plan.monitor.is_some() {
        // A missing account is reported by another check.
        let message = format!(
            "determining the primary requires a database probe, and `probe = \"{probe}\"` is not \
             one"
        );
        problems.error(&spans.upstream.probe, "E_ROLE_PROBE", message, help);
    }
}

fn accounts(draft: &Draft, database: &DatabasePlan, problems: &mut Problems) {
    let Draft { plan, spans } = draft;
    // An account that could not be read has already been reported.
    if spans.upstream.monitor.is_some() || plan.monitor.is_some() {
        return;
    }
    let table = spans.upstream.home.title("monitor");
    let asks = plan.health.probe_protocol() == Some(database.protocol);
    if plan.servers.len() > 1 && !asks {
        let message = "determining which server is the primary requires an account";
        let help = format!("add {table} with `user` and `password_file`");
        problems.error(&spans.upstream.servers_key, "E_NO_MONITOR", message, help);
    } else if database.auth.source == AuthSource::Server && database.auth.account.is_none() {
        let message = "users are looked up on the servers, which requires an account";
        let help = format!(
            "add {table} or [service.auth] with `user` and `password_file`, or [service.auth] \
             with `source = \"file\"` and `users_file`"
        );
        let span = spans.auth.clone().or(spans.service.clone());
        problems.error(&span, "E_NO_ACCOUNT", message, help);
    } else if database.auth.account.is_none() && database.pool.mode == PoolMode::Transaction {
        let message = "no account reads functions, triggers and views: session state left by them \
                       is not detected and may leak to other clients";
        let help = format!(
            "add {table} with `user` and `password_file`, or set `mode = \"session\"` in \
             [service.pool]"
        );
        problems.warning(&spans.service, "W_NO_ACCOUNT", message, help);
    }
}

/// Reports users with `certificate = true` if no authority for client certificates is configured.
fn certificates(Draft { spans, .. }: &Draft, database: &DatabasePlan, problems: &mut Problems) {
    let asked = match &database.tls {
        Some(tls) => tls.client_ca.is_some(),
        // A table that could not be read may request them.
        None => spans.tls.is_some(),
    };
    let mut users = database.auth.users.iter();
    let user = users.find(|(_, user)| user.certificate);
    if let Some((name, _)) = user.filter(|_| !asked) {
        let message = format!(
            "user `{name}` may log in by certificate, but client certificates are not \
             requested"
        );
        let help = "set `client_ca` in [service.tls], or remove `certificate = true`";
        problems.warning(&spans.auth, "W_NO_EFFECT", message, help);
    }
}

/// Reports users with `cleartext = true` if no listener offers TLS or a Unix socket.
fn cleartext(Draft { plan, spans }: &Draft, database: &DatabasePlan, problems: &mut Problems) {
    let mut users = database.auth.users.iter();
    let user = users.find(|(_, user)| user.cleartext);
    let can = spans.tls.is_some() || plan.listen.iter().any(is_private);
    if let Some((name, _)) = user.filter(|_| !can) {
        let message =
            format!("user `{name}` authenticates with a cleartext password, which requires TLS");
        let help = "add [service.tls], or remove `cleartext = true`";
        problems.warning(&spans.auth, "W_NO_EFFECT", message, help);
    }
}

/// Reports `source = "login"` if no client could send its password.
fn passwords(Draft { plan, spans }: &Draft, database: &DatabasePlan, problems: &mut Problems) {
    let can = spans.tls.is_some() || plan.listen.iter().any(is_private);
    if database.auth.source == AuthSource::Login && !can {
        let message = "`source = \"login\"` accepts passwords over TLS or a Unix socket only, and \
                       this service has neither: no client can log in";
        let help = "add [service.tls] with `certificate` and `key`, or a Unix socket to `listen`";
        problems.error(&spans.auth, "E_LOGIN_TLS", message, help);
    }
}

fn is_private(listen: &Listen) -> bool {
    matches!(listen, Listen::Unix(_))
}

/// Checks that peers have an effect, which requires a protocol with forwarded cancel requests, and
/// that none is this process.
pub(crate) fn peers(
    peers: &PeersPlan,
    span: &SourceSpan,
    drafts: &[Draft],
    problems: &mut Problems,
) {
    let cancels = |draft: &&Draft| {
        let protocol = draft.plan.database().map(|database| database.protocol);
        match protocol {
            Some(SqlProtocol::Postgres) => true,
            Some(SqlProtocol::Mysql) | None => false,
        }
    };
    let mut served = drafts.iter().filter(cancels);
    if span.is_some() && served.next().is_none() {
        let message = "[peers] has no effect: no service forwards cancel requests";
        let help = "remove it; it is for `protocol = \"postgres\"`";
        problems.warning(span, "W_NO_EFFECT", message, help);
    }
    for (number, address) in &peers.addresses {
        let own = drafts.iter().flat_map(|draft| &draft.plan.listen);
        if own.into_iter().any(|listen| reaches(address, listen)) {
            let message = format!("instance `{number}` at {address} is this process itself");
            let help = "set `instance` to this instance's number in the list";
            problems.error(span, "E_LOOP", message, help);
        }
    }
}
