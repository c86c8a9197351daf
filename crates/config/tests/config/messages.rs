//! Tests the format of problems, the masking of secrets, and the flags that replace a file.

use std::path::Path;

use evenkeel_config::{Flags, Sources, Style, file_of_flags, from_flags, load, parse};
use evenkeel_monitor::probe::AccountSource;

use super::{plan, service};

#[test]
fn the_plain_text_shows_the_line_and_a_caret() {
    let loaded = parse(
        &service("\tretries = 101 # ü"),
        Some(Path::new("x.toml")),
        &Sources::default(),
    );
    let expected = concat!(
        "x.toml:5:12: error[E_RANGE]: `retries` is 101, but must be 0 to 100\n",
        "  5 | \tretries = 101 # ü\n",
        "    | \t          ^^^\n",
        "  help: the nearest is 100\n"
    );
    assert_eq!(loaded.problems.render(Style::Plain), expected);
}

#[test]
fn a_drawn_problem_names_its_file_and_is_coloured_only_when_asked_for() {
    let loaded = parse(
        &service("retries = 101"),
        Some(Path::new("x.toml")),
        &Sources::default(),
    );
    let with = loaded.problems.render(Style::Drawn { colours: true });
    let without = loaded.problems.render(Style::Drawn { colours: false });
    assert!(with.contains('\u{1b}'), "{with}");
    assert!(!without.contains('\u{1b}'), "{without}");
    assert!(without.contains("x.toml:5:11"), "{without}");
    let missing = load(Path::new("/nonexistent/x.toml")).problems;
    let text = missing.render(Style::Drawn { colours: false });
    assert!(text.contains("/nonexistent/x.toml: cannot read"), "{text}");
}

#[test]
fn no_message_shows_a_secret() {
    let lines = "monitor = { user = 'u', passwrd = 'hunter2', password = 'hunter3' }\n\
        [admin]\ntoken = 'hunter4'\nx = 1";
    let loaded = parse(
        &service(lines),
        Some(Path::new("x.toml")),
        &Sources::default(),
    );
    for style in [Style::Plain, Style::Drawn { colours: false }] {
        let text = loaded.problems.render(style);
        assert!(
            text.contains("passwrd") && !text.contains("hunter"),
            "{text}"
        );
    }
    let good = plan(&service("[admin]\ntoken = 'hunter4'"));
    assert!(!format!("{good:?}").contains("hunter"));
}

#[test]
fn flags_give_the_same_plan_as_a_file() {
    let text = "[[service]]\nname='main'\nlisten='127.0.0.1:1'\nservers=['a:1','b:2']\n\
        balance='source'\n[admin]\nlisten='off'";
    let flags = Flags {
        listen: vec!["tcp://127.0.0.1:1".to_owned()],
        to: vec!["a:1".to_owned(), "tcp://b:2".to_owned()],
        balance: Some("source".to_owned()),
        admin: Some("off".to_owned()),
        ..Flags::default()
    };
    let mut expected = plan(text);
    expected.path = None;
    assert_eq!(from_flags(&flags).plan, Some(expected));
}

#[test]
fn the_file_that_is_printed_for_flags_gives_the_same_plan() {
    let fingerprint = "ab".repeat(32);
    let flags = Flags {
        listen: vec!["postgres://:6432".to_owned(), "127.0.0.1:1".to_owned()],
        to: vec!["postgres://app@db1".to_owned(), "db2:7".to_owned()],
        balance: Some("random-two".to_owned()),
        admin: Some("off".to_owned()),
        socket: Some("/run/x.sock".into()),
        server_fingerprints: vec![fingerprint],
        ..Flags::default()
    };
    let mut plan = from_flags(&flags).plan.expect("a plan");
    let service = &plan.services[0];
    let addresses: Vec<_> = service
        .servers
        .iter()
        .map(|one| one.address.to_string())
        .collect();
    assert_eq!(addresses, ["db1:5432", "db2:7"]);
    assert_eq!(service.monitor.as_ref().expect("a monitor").user, "app");
    assert_eq!(service.server_tls.fingerprints.len(), 1);
    let printed = file_of_flags(&flags, &plan);
    // Errors name the place of the account, which is the only difference.
    let monitor = plan.services[0].monitor.as_mut().expect("a monitor");
    monitor.source = AccountSource::Service;
    let read = parse(&printed, None, &Sources::default());
    assert_eq!(read.plan, Some(plan), "{printed}");
}

#[test]
fn a_password_among_the_flags_is_refused() {
    let flags = Flags {
        listen: vec!["mysql://:3307".to_owned()],
        to: vec!["mysql://app:hunter2@db1".to_owned()],
        ..Flags::default()
    };
    let loaded = from_flags(&flags);
    let shown = loaded.problems.render(Style::Plain);
    assert!(
        shown.contains("MYSQL_PWD") && !shown.contains("hunter2"),
        "{shown}"
    );
}

#[test]
fn wrong_flags_are_told_like_wrong_keys() {
    let check = |listen: &str, to: &str, balance: &str, words: &str| {
        let flags = Flags {
            listen: vec![listen.to_owned()],
            to: vec![to.to_owned()],
            balance: Some(balance.to_owned()),
            ..Flags::default()
        };
        let loaded = from_flags(&flags);
        let text = loaded.problems.render(Style::Plain);
        assert!(loaded.plan.is_none() && text.contains(words), "{text}");
        assert_eq!(loaded.problems.reported().len(), 1, "{text}");
    };
    check("gopher://*:1", "a:1", "first", "use `tcp://*:1`");
    check("tcp://x", "a:1", "first", "--listen: `x` has no port");
    check("*:1", "a", "first", "--to: `a` has no port");
    check("*:1", "a:1", "frist", "did you mean `first`?");
    check(
        "127.0.0.1:9000",
        "a:1",
        "first",
        "the admin port listens on the same address",
    );
}
