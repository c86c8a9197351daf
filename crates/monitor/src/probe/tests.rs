//! Tests the parts that need no server.

use evenkeel_tls::messages::NO_TLS;

use super::*;

fn http_probe(path: &str, host: Option<&str>) -> Probe {
    let host = host.map(str::to_owned);
    Probe::Http(HttpProbe {
        path: path.to_owned(),
        host,
        status: Vec::new(),
        body: None,
    })
}

fn account() -> MonitorAccount {
    MonitorAccount {
        user: "monitor".to_owned(),
        password: "s3cret".to_owned(),
        database: None,
        source: AccountSource::Service,
    }
}

#[test]
fn no_debug_output_shows_the_password() {
    let text = format!("{:?}", account());
    assert!(
        text.contains("monitor") && !text.contains("s3cret"),
        "{text}"
    );
    for probe in [
        Probe::Mysql(MysqlProbe {
            query: "SELECT 1".to_owned(),
            ..Default::default()
        }),
        Probe::Postgres(PostgresProbe {
            query: "SELECT 1".to_owned(),
            ..Default::default()
        }),
    ] {
        let asker = Prober::new(&probe, Some(account()), Tls::Off).unwrap();
        assert!(!format!("{asker:?}").contains("s3cret"));
    }
}

/// TO SEE THIS RED: let [`AccountSource::name`] return one name.
#[test]
fn a_refused_account_is_named_by_its_place() {
    let flags = AccountSource::Flags {
        password: "PGPASSWORD",
    };
    for (source, named) in [
        (AccountSource::Service, "database in [service.monitor]"),
        (AccountSource::Cluster, "database in [cluster.monitor]"),
        (AccountSource::Auth, "database in [service.auth]"),
        (flags, "the user in --to, the password (PGPASSWORD)"),
    ] {
        let values = source.values();
        assert!(values.ends_with(named), "{values}");
    }
}

/// TO SEE THIS RED: return the message as it is in [`SettingsPlace::name_in`].
#[test]
fn settings_of_tls_are_named_by_their_place() {
    let flags = AccountSource::Flags {
        password: "PGPASSWORD",
    };
    let exactly = "set [service.server_tls] ca = \"…\", or accept exactly this certificate: \
                   [service.server_tls] fingerprints = [\"sha256:aa\"]";
    let mode = "[service.server_tls] mode (the server requires TLS)";
    for (source, message, named) in [
        (AccountSource::Service, exactly, exactly),
        (
            AccountSource::Cluster,
            exactly,
            "set [cluster.server_tls] ca = \"…\", or accept exactly this certificate: \
             [cluster.server_tls] fingerprints = [\"sha256:aa\"]",
        ),
        (
            flags,
            exactly,
            "set --server-ca FILE, or accept exactly this certificate: --server-fingerprint \
             \"sha256:aa\"",
        ),
        (flags, mode, "--server-tls (the server requires TLS)"),
    ] {
        let place = source.tls_settings();
        assert_eq!(place.name_in(message), named);
        let named = |why: ProbeFailure| format!("{:?}", why.named_in(place));
        let no_tls = named(ProbeFailure::Misconfigured(NO_TLS.to_owned()));
        let is_of_service = no_tls.contains("[service.server_tls]");
        assert_eq!(is_of_service, source == AccountSource::Service, "{no_tls}");
    }
}

#[test]
fn what_can_be_known_wrong_without_a_server_is_refused_at_the_start() {
    let verify = |name: &str| Tls::Verify {
        ca: None,
        fingerprints: Vec::new(),
        server_name: name.to_owned(),
        identity: None,
    };
    let refused =
        |probe: Probe, account, tls| Prober::new(&probe, account, tls).unwrap_err().to_string();
    let mysql = || {
        Probe::Mysql(MysqlProbe {
            query: "SELECT 1".to_owned(),
            ..Default::default()
        })
    };
    let postgres = || {
        Probe::Postgres(PostgresProbe {
            query: "SELECT 1".to_owned(),
            ..Default::default()
        })
    };
    assert!(refused(mysql(), None, Tls::Off).contains("[service.monitor]"));
    assert!(refused(postgres(), None, Tls::Off).contains("[service.monitor]"));
    for probe in [mysql(), postgres(), http_probe("/", None)] {
        assert!(refused(probe, Some(account()), verify("no name")).contains("\"no name\""));
    }
    assert!(refused(http_probe("health", None), None, Tls::Off).contains("begin with a slash"));
    assert!(refused(http_probe("/", Some("a\r\nb: c")), None, Tls::Off).contains("host"));
    let empty = Authorities::from_pem(b"no certificate")
        .unwrap_err()
        .to_string();
    assert!(
        empty.contains("[service.server_tls] ca: holds no PEM certificate"),
        "{empty}"
    );
}

#[test]
fn a_probe_may_run_in_a_task_of_its_own() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let asker = Prober::new(&http_probe("/", None), None, Tls::Off).unwrap();
    let target = Target::unix("/nonexistent/socket".into());
    let ask = sendable(asker.ask(&target, Duration::from_secs(5)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let seen = runtime.block_on(ask);
    assert_eq!(
        seen.outcome,
        Outcome::Failed("no such socket file".to_owned())
    );
}

#[test]
fn a_servers_words_are_passed_on_short_and_on_one_line() {
    assert_eq!(messages::truncated("a\nb\x1b[31m"), "a b [31m");
    assert_eq!(messages::truncated(&"x".repeat(1000)).chars().count(), 301);
}
