//! Tests flags of services with a database protocol. The environment is passed as an argument.

use super::*;

fn loaded(listen: &str, to: &str, environment: &[(&str, &str)]) -> Loaded {
    let flags = Flags {
        listen: vec![listen.to_owned()],
        to: to.split(',').map(str::to_owned).collect(),
        ..Flags::default()
    };
    let variable = |name: &str| {
        let found = environment.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    from_flags_with(&flags, variable)
}

fn codes(loaded: &Loaded) -> Vec<&'static str> {
    loaded.problems.list.iter().map(|one| one.code).collect()
}

#[test]
fn a_postgres_service_without_a_file_asks_with_the_account_of_the_environment() {
    let account = [("PGUSER", "eve"), ("PGPASSWORD", "secret")];
    let loaded = loaded("postgres://127.0.0.1:1", "a:1,postgres://b:1", &account);
    assert_eq!(codes(&loaded), [""; 0]);
    let mut plan = loaded.plan.expect("a plan");
    let service = plan.services.remove(0);
    assert_eq!(service.protocol_info().name, "postgres");
    assert_eq!(service.balance, Algorithm::LeastConnections);
    assert_eq!(service.health.probe_name(), "postgres");
    let account = service.database().expect("a database").auth.clone().account;
    let account = account.expect("an account");
    assert_eq!(
        (account.user.as_str(), account.password.expose()),
        ("eve", "secret")
    );
    let monitor = service.monitor.expect("a monitor");
    assert_eq!(monitor.user, "eve");
    assert_eq!(monitor.source.name(), "--to");
}

#[test]
fn a_mysql_service_without_a_file_asks_with_an_account_of_its_own() {
    let account = [("PGUSER", "no"), ("MYSQL_USER", "eve"), ("MYSQL_PWD", "s")];
    let reported = loaded("mysql://127.0.0.1:1", "a:1,mysql://b:1", &account);
    assert_eq!(codes(&reported), [""; 0]);
    let service = reported.plan.expect("a plan").services.remove(0);
    assert_eq!(service.protocol_info().name, "mysql");
    assert_eq!(service.health.probe_name(), "mysql");
    let monitor = service.monitor.expect("a monitor");
    assert_eq!(
        (monitor.user.as_str(), monitor.password.expose()),
        ("eve", "s")
    );
    let none = loaded("mysql://127.0.0.1:1", "a:1", &[("PGUSER", "no")]);
    assert_eq!(codes(&none), ["E_NO_ACCOUNT"]);
    assert!(none.problems.list[0].help.contains("MYSQL_USER"));
}

#[test]
fn without_an_account_it_is_told_once_what_to_set() {
    let loaded = loaded("postgres://127.0.0.1:1", "a:1,b:1", &[("PGUSER", "")]);
    assert_eq!(codes(&loaded), ["E_NO_ACCOUNT"]);
    assert!(loaded.problems.list[0].help.contains("PGUSER"));
}

#[test]
fn both_sides_speak_one_protocol() {
    let account = [("PGUSER", "eve")];
    assert_eq!(
        codes(&loaded("postgres://*:1", "tcp://a:1", &account)),
        ["E_BOTH"]
    );
    assert_eq!(
        codes(&loaded("*:1", "postgres://a:1", &account)),
        ["E_BOTH"]
    );
    assert_eq!(codes(&loaded("http://*:1", "a:1", &account)), [""; 0]);
}

/// TO SEE THIS RED: leave out the calls of [`wording`].
#[test]
fn problems_of_flags_name_the_flags() {
    let account = |name: &str| (name == "PGUSER").then(|| "eve".to_owned());
    let shown = |change: &dyn Fn(&mut Flags)| {
        let mut flags = Flags {
            listen: vec!["postgres://127.0.0.1:1".to_owned()],
            to: vec!["postgres://a:1".to_owned()],
            ..Flags::default()
        };
        change(&mut flags);
        let loaded = from_flags_with(&flags, account);
        let lines = loaded.problems.list.iter();
        let lines = lines.map(|one| format!("{}; {}", one.message, one.help));
        lines.collect::<Vec<_>>().join("\n")
    };
    let missing = PathBuf::from("/no/such");
    assert_eq!(
        shown(&|flags| flags.server_tls = Some("maybe".to_owned())),
        "--server-tls: `maybe` is not a value of it; it is one of `off`, `encrypt` or `verify`"
    );
    let of_file = "cannot read /no/such: no such file or directory; check the path; relative paths \
                   begin at the current one";
    assert_eq!(
        shown(&|flags| flags.server_ca = Some(missing.clone())),
        format!("--server-ca: {of_file}")
    );
    assert_eq!(
        shown(&|flags| flags.tls = Some((missing.clone(), missing.clone()))),
        format!("--tls-certificate: {of_file}\n--tls-key: {of_file}")
    );
    let fingerprint = shown(&|flags| flags.server_fingerprints = vec!["zz".to_owned()]);
    assert!(
        fingerprint.starts_with("--server-fingerprint: a fingerprint")
            && fingerprint.contains("write `--server-fingerprint sha256:…`"),
        "{fingerprint}"
    );
    assert_eq!(
        shown(&|flags| flags.to.push("a:1".to_owned())),
        "--to: a:1 is listed twice; list it once"
    );
    assert!(
        shown(&|flags| flags.listen.push("127.0.0.1:1".to_owned())).starts_with(
            "--listen: 127.0.0.1:1 is taken: another `--listen` has the same address;"
        )
    );
    let admin = shown(&|flags| flags.admin = Some("127.0.0.1:1".to_owned()));
    assert!(
        admin.ends_with("set `--admin off` or another port with `--admin`"),
        "{admin}"
    );
    let itself = shown(&|flags| flags.to = vec!["127.0.0.1:1".to_owned()]);
    assert!(
        itself.starts_with("--to: 127.0.0.1:1 is the address that `--listen` itself has"),
        "{itself}"
    );
    assert!(
        shown(&|flags| flags.to = vec!["postgres://eve@a/orders?sslmode=off".to_owned()])
            .starts_with("--to: `a/orders?sslmode=off`: a server's URL has no path")
    );
}
