//! Reads `[[service.rule]]`: the statements that a rule matches, and its effect.

use evenkeel_policy::rules::{BadPattern, Pattern, RULES_MAX};
use evenkeel_sql::digest::Digest;
use toml::de::DeValue;

use crate::keys;
use crate::nearest::nearest;
use crate::plan::{RulePlan, RuleTo, ServerPlan};
use crate::problem::Problems;
use crate::reader::{Table, Value, listed, wrong_type};
use crate::server;
use crate::setting::Settings;

/// Reads the rules of a service, in order. `splits` is true if the service routes reads to
/// replicas.
pub(crate) fn read(
    service: &Table<'_>,
    servers: &[ServerPlan],
    splits: bool,
    problems: &mut Problems,
) -> Vec<RulePlan> {
    let mut rules: Vec<RulePlan> = Vec::new();
    for table in service.tables("rule", &keys::RULE, problems) {
        let rule = read_one(&table, servers, problems);
        check_order(&table, &rule, &rules, problems);
        check_split(&table, splits, problems);
        rules.push(rule);
    }
    rules
}

fn read_one(table: &Table<'_>, servers: &[ServerPlan], problems: &mut Problems) -> RulePlan {
    let rule = RulePlan {
        name: server::read_name(table, "rule", "errors, `status` and `explain`", problems),
        digest: read_digest(table, problems),
        pattern: read_pattern(table, problems),
        to: read_to(table, servers, problems),
        ..RulePlan::of(table, problems)
    };
    check_effect(table, &rule, problems);
    rule
}

fn read_digest(table: &Table<'_>, problems: &mut Problems) -> Option<u64> {
    let written = table.text("digest", problems)?;
    let digest = written.parse::<Digest>().ok();
    if digest.is_none() {
        let message = format!("`{written}` is not a digest");
        let help = "16 hexadecimal digits, as shown by `evenkeel explain \"SELECT …\"`";
        problems.error(&table.value_span("digest"), "E_VALUE", message, help);
    }
    digest.map(|digest| digest.0)
}

fn read_pattern(table: &Table<'_>, problems: &mut Problems) -> Option<Pattern> {
    let written = table.text("match", problems)?;
    match Pattern::new(written) {
        Ok(pattern) => Some(pattern),
        Err(BadPattern(why)) => {
            let message = format!("`match` is not a regular expression: {why}");
            let help = "use single quotes, so that backslashes are kept: `match = '^select\\b'`";
            problems.error(&table.value_span("match"), "E_VALUE", message, help);
            None
        }
    }
}

/// Reads a word, or an array of servers.
fn read_to(table: &Table<'_>, servers: &[ServerPlan], problems: &mut Problems) -> Option<RuleTo> {
    let value = table.value("to")?;
    if let DeValue::Array(names) = value.get_ref() {
        if names.is_empty() {
            let help = format!(
                "name servers of this service, or write {}",
                listed(RuleTo::GROUPS)
            );
            problems.error(&Some(value.span()), "E_VALUE", "`to` is empty", help);
        }
        let positions = names
            .iter()
            .map(|name| position_of(name, servers, problems));
        let positions: Vec<_> = positions.collect();
        return positions
            .into_iter()
            .collect::<Option<_>>()
            .map(RuleTo::Servers);
    }
    match table.word("to", problems)? {
        "primary" => Some(RuleTo::Primary),
        "replicas" => Some(RuleTo::Replicas),
        _ => Some(RuleTo::Any),
    }
}

fn position_of(
    value: &Value<'_>,
    servers: &[ServerPlan],
    problems: &mut Problems,
) -> Option<usize> {
    let Some(name) = value.get_ref().as_str() else {
        let help = "write `to = [\"db2\", \"db3\"]`";
        wrong_type("to", "a word or names of servers", value, help, problems);
        return None;
    };
    let position = servers.iter().position(|server| server.name == name);
    if position.is_none() {
        let message = format!("`{name}` is not a server of this service");
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let help = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "its servers are {}",
                listed(&names).replace(" or ", " and ")
            ),
        };
        problems.error(&Some(value.span()), "E_VALUE", message, help);
    }
    position
}

/// Checks that a rule has an effect, and that its effects do not contradict each other.
fn check_effect(table: &Table<'_>, rule: &RulePlan, problems: &mut Problems) {
    let given = |key: &&str| table.value(key).is_some();
    let effects = ["to", "timeout_ms", "reject"];
    if !effects.iter().any(given) && !table.has_unknown {
        let help = format!("add {}", listed(&effects));
        problems.error(&table.span, "E_MISSING_KEY", "this rule does nothing", help);
    }
    let other = ["to", "timeout_ms"].into_iter().find(given);
    if let (Some(other), true) = (other, given(&"reject")) {
        let message = format!("`reject` and `{other}` exclude each other");
        let help = "remove one of them: a rejected statement reaches no server";
        problems.error(&table.key_span(other), "E_BOTH", message, help);
    }
    let reads = !matches!(rule.to, None | Some(RuleTo::Primary));
    if rule.assume_read && !reads {
        let message = "`assume_read` has no effect: this rule sends nothing to replicas";
        let help = "remove it, or set `to`";
        problems.warning(&table.key_span("assume_read"), "W_NO_EFFECT", message, help);
    }
}

/// Checks a rule against the preceding ones.
fn check_order(table: &Table<'_>, rule: &RulePlan, before: &[RulePlan], problems: &mut Problems) {
    if before.len() == RULES_MAX {
        let message = format!("a service has at most {RULES_MAX} rules");
        let help = "every statement is checked against all of them: combine rules";
        problems.error(&table.span, "E_RANGE", message, help);
    }
    let is_same = |other: &RulePlan| !rule.name.is_empty() && other.name == rule.name;
    if before.iter().any(is_same) {
        let message = format!("this service has another rule `{}`", rule.name);
        let help = "give each its own name";
        problems.error(&table.value_span("name"), "E_DUPLICATE_RULE", message, help);
    }
    let is_last = |other: &&RulePlan| other.active && other.is_for_all();
    if let Some(last) = before.iter().find(is_last) {
        let message = format!(
            "this rule has no effect: rule `{}` before it matches every statement",
            last.name
        );
        let help = "move it before that rule";
        problems.warning(&table.span, "W_NO_EFFECT", message, help);
    }
}

fn check_split(table: &Table<'_>, splits: bool, problems: &mut Problems) {
    if table.value("to").is_some() && !splits {
        let message = "`to` has no effect: with `reads = false` everything goes to the primary";
        let help = "set `reads = true` in [service.split]; a last rule without conditions and \
                    with `to = \"primary\"` keeps all else there";
        problems.warning(&table.key_span("to"), "W_NO_EFFECT", message, help);
    }
}
