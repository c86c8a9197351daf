//! Tests of the deciding rule, and of the combination of several statements.

use super::*;

fn rule(name: &str, when: RuleMatch, then: RuleAction) -> Rule {
    Rule {
        name: name.into(),
        is_active: true,
        when,
        then,
    }
}

fn like(pattern: &str) -> RuleMatch {
    RuleMatch {
        pattern: Some(Pattern::new(pattern).expect("a pattern")),
        ..RuleMatch::default()
    }
}

fn to(group: ServerGroup) -> RuleAction {
    RuleAction {
        to: Some(Destination {
            group,
            assume_read: false,
        }),
        ..RuleAction::default()
    }
}

fn within(timeout_ms: u64) -> RuleAction {
    RuleAction {
        timeout_ms: Some(timeout_ms),
        ..RuleAction::default()
    }
}

fn refuse(words: &str) -> RuleAction {
    RuleAction {
        reject: Some(words.into()),
        ..RuleAction::default()
    }
}

fn input(text: &str) -> RuleInput<'_> {
    RuleInput {
        user: "app",
        database: Some(b"shop"),
        text: Some(text.as_bytes()),
        bare: None,
        digest: Some(7),
    }
}

fn names<'a>(rules: &'a Rules, outcome: &'a RuleOutcome) -> Vec<&'a str> {
    let fitting = outcome.fitting();
    fitting.map(|index| &*rules.all()[index].name).collect()
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rules = Rules::new(vec![
        rule("none", like("^delete"), refuse("no")),
        rule("first", like("^select"), within(5)),
        rule("second", RuleMatch::default(), refuse("never reached")),
    ]);
    let outcome = rules.evaluate(&input("SELECT 1"));
    assert_eq!(names(&rules, &outcome), ["first"]);
    assert_eq!((outcome.timeout_ms, outcome.is_refused()), (Some(5), false));
    let outcome = rules.evaluate(&input("DELETE FROM t"));
    assert_eq!(rules.rejection(&outcome), Some(("none", "no")));
    let outcome = rules.evaluate(&input("UPDATE t SET a = 1"));
    assert_eq!(rules.rejection(&outcome), Some(("second", "never reached")));
}

#[test]
fn a_rule_that_is_not_active_is_counted_and_does_nothing() {
    let mut tried = rule("tried", RuleMatch::default(), refuse("no"));
    tried.is_active = false;
    let rules = Rules::new(vec![tried, rule("rest", RuleMatch::default(), within(5))]);
    let outcome = rules.evaluate(&input("SELECT 1"));
    assert_eq!(names(&rules, &outcome), ["tried", "rest"]);
    assert_eq!((outcome.timeout_ms, outcome.is_refused()), (Some(5), false));
}

#[test]
fn every_condition_must_be_met_and_the_first_that_is_not_is_named() {
    let when = || RuleMatch {
        user: Some("app".into()),
        database: Some("shop".into()),
        digest: Some(7),
        ..like("from orders")
    };
    let text = "SELECT * FROM orders";
    let good = input(text);
    assert_eq!(when().differs(&good), None);
    let differs = |input: RuleInput<'_>| when().differs(&input);
    let other = RuleInput {
        user: "App",
        ..good
    };
    assert_eq!(differs(other), Some("user"));
    for database in [None, Some(&b"Shop"[..])] {
        let other = RuleInput { database, ..good };
        assert_eq!(differs(other), Some("database"));
    }
    for digest in [None, Some(8)] {
        let other = RuleInput { digest, ..good };
        assert_eq!(differs(other), Some("digest"));
    }
    assert_eq!(differs(input("SELECT * FROM items")), Some("match"));
    let other = RuleInput { text: None, ..good };
    assert_eq!(differs(other), Some("match"), "too long to be read");
    assert_eq!(RuleMatch::default().differs(&other), None);
    let commented = RuleInput {
        bare: Some(b"SELECT 1 FROM orders"),
        ..input("/* report */ SELECT 1 FROM orders")
    };
    assert_eq!(like("^select").differs(&commented), None);
    assert_eq!(like("^/\\* report").differs(&commented), None);
}

#[test]
fn case_and_lines_do_not_count_in_a_pattern_and_any_bytes_are_text() {
    let fits = |pattern: &str, text: &[u8]| Pattern::new(pattern).expect("good").fits(text);
    assert!(fits("^select .* from t$", b"SELECT a,\n b FROM T"));
    assert!(!fits("(?-i)select", b"SELECT"));
    assert!(fits("a.b", b"a\xffb"));
    assert!(fits("größe", "SELECT größe".as_bytes()));
}

#[test]
fn a_pattern_that_is_none_or_too_large_is_refused_in_words() {
    let BadPattern(why) = Pattern::new("a(b").expect_err("no pattern");
    assert_eq!(why, "unclosed group");
    let BadPattern(why) = Pattern::new("(a{1000}){1000}").expect_err("too large");
    assert!(why.contains("size limit"), "{why}");
}

#[test]
fn of_several_statements_one_refusal_the_shortest_time_and_the_primary_hold() {
    let rules = Rules::new(vec![
        rule("primary", like("orders"), to(ServerGroup::Primary)),
        rule("replicas", like("items"), to(ServerGroup::Replicas)),
        rule("more", like("parts"), to(ServerGroup::Replicas)),
        rule(
            "reports",
            like("reports"),
            to(ServerGroup::Servers([1].into())),
        ),
        rule("short", like("short"), within(5)),
        rule("long", like("long"), within(50)),
        rule("endless", like("endless"), within(0)),
        rule("never", like("drop"), refuse("no")),
    ]);
    let all = |texts: &[&str]| {
        let judged = texts.iter().map(|text| rules.evaluate(&input(text)));
        judged
            .reduce(|one, other| rules.join(one, other))
            .expect("one")
    };
    let group = |texts: &[&str]| rules.destination(&all(texts)).map(|to| to.group.clone());
    assert_eq!(group(&["items", "parts"]), Some(ServerGroup::Replicas));
    assert_eq!(group(&["items", "orders"]), Some(ServerGroup::Primary));
    assert_eq!(group(&["orders", "other"]), Some(ServerGroup::Primary));
    assert_eq!(group(&["items", "other"]), Some(ServerGroup::Replicas));
    assert_eq!(group(&["items", "reports"]), None);
    assert_eq!(
        all(&["long", "short", "endless", "other"]).timeout_ms,
        Some(5)
    );
    assert_eq!(all(&["other", "endless"]).timeout_ms, Some(0));
    let refused = all(&["items", "drop", "short"]);
    assert_eq!(rules.rejection(&refused), Some(("never", "no")));
    assert_eq!(names(&rules, &refused), ["replicas", "short", "never"]);
}

#[test]
fn who_vouches_for_one_statement_does_not_vouch_for_the_other() {
    let vouching = |assume_read| RuleAction {
        to: Some(Destination {
            group: ServerGroup::Replicas,
            assume_read,
        }),
        ..RuleAction::default()
    };
    let rules = Rules::new(vec![
        rule("trusted", like("items"), vouching(true)),
        rule("plain", like("parts"), vouching(false)),
    ]);
    let judged = |text| rules.evaluate(&input(text));
    for (one, other) in [("items", "parts"), ("parts", "items")] {
        let both = rules.join(judged(one), judged(other));
        let to = rules.destination(&both).expect("replicas");
        assert!(!to.assume_read, "{one}, {other}");
    }
    let alone = rules.join(judged("items"), judged("other"));
    assert_eq!(rules.destination(&alone), None);
    let same = rules.join(judged("items"), judged("items"));
    assert!(rules.destination(&same).is_some_and(|to| to.assume_read));
}

#[test]
fn the_last_rule_that_there_may_be_counts_and_none_beyond() {
    let all = (0..RULES_MAX + 1).map(|index| {
        let when = like(&format!("^t{index}$"));
        rule(&index.to_string(), when, refuse("no"))
    });
    let rules = Rules::new(all.collect());
    let last = rules.evaluate(&input("t127"));
    assert_eq!(names(&rules, &last), ["127"]);
    assert!(!rules.evaluate(&input("t128")).is_refused());
}
