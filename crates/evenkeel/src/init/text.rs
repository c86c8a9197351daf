//! Writes the configuration.

use std::fmt::Write as _;

use evenkeel_config::plan::SqlProtocol;
use evenkeel_monitor::inspect::TlsOffer;

use super::{AskedServer, Group, Lookup, Names, Written, sql};

/// Returns the texts of all files. The unreached servers are named in a comment.
pub(crate) fn write(groups: &[Group], unreached: &[AskedServer], names: &Names) -> Written {
    let mut written = Written {
        config: String::new(),
        private_files: Vec::new(),
        next_steps: Vec::new(),
    };
    let config = &mut written.config;
    let file = names.config.display();
    let _ = writeln!(
        config,
        "# Written by `evenkeel init`. Check it with `evenkeel check -c {file}`, start it with\n\
         # `evenkeel run -c {file}`. docs/configuration.md explains the keys.\n#"
    );
    for server in groups.iter().flat_map(|group| &group.servers) {
        let _ = writeln!(config, "# {}: {}", server.address(), description(server));
    }
    for server in unreached {
        let why = server.offer.as_ref().err().map_or("", String::as_str);
        let _ = writeln!(config, "# not reached, and left out: {why}");
    }
    for group in groups {
        let files = Files::of(group, groups.len() > 1, &names.stem);
        service(group, &files, &mut written.config);
        write_files(group, files, &mut written);
    }
    let mut servers = groups.iter().flat_map(|group| &group.servers);
    let next = match servers.any(|server| *server.tls() == TlsOffer::Unknown) {
        true => "run this `evenkeel init` again with --force".to_owned(),
        false => format!("evenkeel check -c {file} && evenkeel run -c {file}"),
    };
    written.next_steps.push(next);
    written
}

/// Names of a group's files.
struct Files {
    /// `None`: the account has no password.
    password: Option<String>,
    sql: String,
}

impl Files {
    fn of(group: &Group, has_others: bool, stem: &str) -> Self {
        let stem = match has_others {
            true => format!("{stem}-{}", group.protocol.name()),
            false => stem.to_owned(),
        };
        let has_password = !group.password.is_empty();
        Self {
            password: has_password.then(|| format!("{stem}.password")),
            sql: format!("{stem}.sql"),
        }
    }
}

fn write_files(group: &Group, files: Files, written: &mut Written) {
    if let Some(name) = files.password {
        written
            .private_files
            .push((name, format!("{}\n", group.password)));
    }
    let statements = sql::statements(group);
    if statements.is_empty() {
        return;
    }
    if group.needs_sql() {
        let primary = group
            .primary()
            .map(AskedServer::address)
            .unwrap_or_default();
        let client = match group.protocol {
            SqlProtocol::Postgres => "psql -d postgres -f",
            SqlProtocol::Mysql => "mysql <",
        };
        let sql = &files.sql;
        let who = "as an administrator";
        let step = format!("run {sql} on the primary, {primary}, {who}: `{client} {sql}`");
        written.next_steps.push(step);
    }
    written.private_files.push((files.sql, statements));
}

fn description(server: &AskedServer) -> String {
    let mut text = server.product().to_owned();
    match &server.facts {
        Ok(facts) => {
            let source = facts.source.as_deref();
            let role = match (facts.is_replica, source) {
                (false, _) => "primary".to_owned(),
                (true, Some(source)) => format!("replica of {source}"),
                (true, None) => "replica".to_owned(),
            };
            let _ = write!(text, ", {role}");
        }
        Err(why) => {
            let _ = write!(text, ", role unknown ({why})");
        }
    }
    let tls = match server.tls() {
        TlsOffer::Off => "no TLS".to_owned(),
        TlsOffer::Verified => "TLS with a certificate of a public CA".to_owned(),
        TlsOffer::Untrusted(_) => "TLS with a certificate that no public CA has signed".to_owned(),
        TlsOffer::Unusable(why) => format!("TLS that cannot be verified ({why})"),
        TlsOffer::Unknown => "TLS unknown, since it refuses connections from here".to_owned(),
    };
    let _ = write!(text, "; {tls}");
    text
}

fn service(group: &Group, files: &Files, config: &mut String) {
    let (name, port) = match group.protocol {
        SqlProtocol::Postgres => (group.protocol.name(), 6432),
        SqlProtocol::Mysql => (group.protocol.name(), 3307),
    };
    let (usable, left_out) = chosen(group);
    let servers: Vec<_> = usable
        .iter()
        .map(|server| quoted(&server.address()))
        .collect();
    let _ = write!(
        config,
        "\n[[service]]\nname     = \"{name}\"\nprotocol = \"{name}\"\n\
         listen   = \"127.0.0.1:{port}\"          # \"*:{port}\" for clients on other machines\n\
         servers  = [{}]\n",
        servers.join(", ")
    );
    for server in left_out {
        let _ = writeln!(
            config,
            "# Left out, since the others have TLS and it has none: {}. Turn on TLS there.",
            server.address()
        );
    }
    monitor(group, files, config);
    server_tls(&usable, config);
    if usable.len() > 1 {
        config.push_str("\n[service.split]\nreads = true                      # at replicas\n");
    }
    without_password(group, config);
}

/// Returns the servers of the service, and those without TLS if others have it: all servers of a
/// service are connected to in the same way.
fn chosen(group: &Group) -> (Vec<&AskedServer>, Vec<&AskedServer>) {
    let is_open = |server: &AskedServer| *server.tls() == TlsOffer::Off && !server.is_local();
    let (open, others): (Vec<_>, Vec<_>) = group.servers.iter().partition(|server| is_open(server));
    match others.is_empty() {
        true => (open, Vec::new()),
        false => (others, open),
    }
}

fn monitor(group: &Group, files: &Files, config: &mut String) {
    config.push_str(
        "\n# The account that checks the servers, asks for their roles, and reads password\n\
         # hashes of users that log in.\n",
    );
    let sql = &files.sql;
    let remark = match (group.is_superuser(), group.needs_sql()) {
        (true, _) => format!("# It may do everything: {sql} has one with the least grants.\n"),
        (false, true) => format!("# It lacks grants: run {sql} on the primary.\n"),
        (false, false) => String::new(),
    };
    let user = quoted(&group.user);
    let _ = writeln!(config, "{remark}[service.monitor]\nuser          = {user}");
    match &files.password {
        Some(name) => {
            let _ = writeln!(config, "password_file = {}", quoted(name));
        }
        None => {
            config.push_str("# password_file = \"…\"           # the account has no password\n")
        }
    }
    if group.lookup() == Lookup::Function {
        config.push_str(
            "\n[service.auth]\nquery = \"SELECT rolname, rolpassword, valid_until FROM \
             public.evenkeel_login($1)\"\n\
             # Where no account may read pg_authid, as on managed servers, use these lines in place\n\
             # of `query`:\n",
        );
        config.push_str(LOGIN_SOURCE);
    } else if group.lacks_hashes() {
        config.push_str("\n# If no account may read the password hashes, use these lines:\n#\n");
        config.push_str("# [service.auth]\n");
        config.push_str(LOGIN_SOURCE);
    }
}

/// Lines with which clients prove their passwords at a server.
const LOGIN_SOURCE: &str = "# source = \"login\"\n#\n\
    # [service.tls]\n\
    # certificate = \"evenkeel.crt\"\n\
    # key         = \"evenkeel.key\"\n\
    #\n\
    # Clients then send their passwords, over TLS only, and Evenkeel logs in with them. This makes a\n\
    # certificate:\n\
    #   openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=evenkeel \\\n\
    #     -keyout evenkeel.key -out evenkeel.crt\n";

fn server_tls(servers: &[&AskedServer], config: &mut String) {
    if servers.iter().all(|server| server.is_local()) {
        return;
    }
    let is_passing = |server: &&&AskedServer| {
        server
            .known()
            .is_some_and(|facts| facts.has_passing_certificate)
            && matches!(server.tls(), TlsOffer::Untrusted(_))
    };
    let has = |wanted: fn(&TlsOffer) -> bool| servers.iter().any(|server| wanted(server.tls()));
    let mut lines = String::new();
    if servers.iter().all(|server| *server.tls() == TlsOffer::Off) {
        lines.push_str(
            "# No server has TLS: everyone on the network between can read and change the data.\n\
             # Turn on TLS at the servers, and run `evenkeel init` again.\nmode = \"off\"\n",
        );
    } else if let Some(server) = servers.iter().find(is_passing) {
        let address = server.address();
        let _ = writeln!(
            lines,
            "# {address} makes a new certificate at each start, so that a man in the middle\n\
             # is not detected. Set ssl_cert and ssl_key there, and run `evenkeel init` again.\n\
             mode = \"encrypt\""
        );
    } else if has(|tls| matches!(tls, TlsOffer::Unusable(_))) {
        lines.push_str(
            "# A certificate cannot be verified, as said above: a man in the middle is not\n\
             # detected.\nmode = \"encrypt\"\n",
        );
    } else if has(|tls| *tls == TlsOffer::Unknown) {
        lines.push_str("# Not known yet: run `evenkeel init` again after the SQL.\n");
    } else {
        fingerprints(servers, &mut lines);
    }
    if !lines.is_empty() {
        let _ = write!(config, "\n[service.server_tls]\n{lines}");
    }
}

/// Writes the fingerprints of certificates that no public authority has signed.
fn fingerprints(servers: &[&AskedServer], lines: &mut String) {
    let mut pinned = String::new();
    for server in servers {
        if let TlsOffer::Untrusted(fingerprint) = server.tls() {
            let _ = writeln!(pinned, "  \"{fingerprint}\", # {}", server.address());
        }
    }
    if pinned.is_empty() {
        return;
    }
    let _ = writeln!(
        lines,
        "# Accepts exactly these certificates. Compare them with the servers' own output of\n\
         # `openssl x509 -in server.crt -noout -fingerprint -sha256`.\nfingerprints = [\n{pinned}]"
    );
}

fn without_password(group: &Group, config: &mut String) {
    let mut users: Vec<&str> = group
        .facts()
        .flat_map(|facts| &facts.without_password)
        .map(String::as_str)
        .collect();
    users.sort_unstable();
    users.dedup();
    if !users.is_empty() {
        let _ = writeln!(
            config,
            "\n# Clients cannot log in as these users, of which the server stores no password:\n\
             # {}\n# If a directory or another service has it (LDAP, PAM): `source = \"login\"` in\n\
             # [service.auth].",
            users.join(", ")
        );
    }
}

/// Returns a string of TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
