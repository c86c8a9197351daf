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
