//! Implements `evenkeel explain "SELECT …"`, `"GET https://…"` and `tls://…`: shows where a
//! statement or a request would be routed, and why.

use std::process::ExitCode;

use clap::Args;
use evenkeel_config::Style;

use super::ProcessArgs;
use super::requests::{client, fail, print};
use crate::client::ClientError;
use crate::explain::from_plan;
use crate::status::{Explanation, Question, RuleFit};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Statement to explain, a request such as `GET https://shop.example/api/x`, or a server name of
    /// TLS such as `tls://shop.example`.
    sql: String,
    /// Service; optional if only one service routes statements, or receives requests.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Database used to look up functions and tables; optional if only one is in use.
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// User who sends the statement, for rules with a user condition.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Evaluate this rule as if it were active.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Requests the explanation from the running process. Without one, uses the config file if it is
/// named.
pub(super) fn explain(args: &ExplainArgs) -> ExitCode {
    let Some(client) = client(&args.process) else {
        return ExitCode::FAILURE;
    };
    let question = Question {
        sql: args.sql.clone(),
        service: args.service.clone(),
        database: args.database.clone(),
        user: args.user.clone(),
        rule: args.rule.clone(),
    };
    let answer = match client.explain(&question) {
        Err(ClientError::Nobody(_)) if args.process.config.is_some() => from_file(args, &question),
        answer => answer.unwrap_or_else(|error| Err(error.to_string())),
    };
    match answer {
        Ok(explanation) if args.json => {
            // Strings always have a JSON form.
            print(&serde_json::to_string_pretty(&explanation).unwrap_or_default())
        }
        Ok(explanation) => print(rendered(&explanation).trim_end()),
        Err(why) => fail(&why),
    }
}

fn from_file(args: &ExplainArgs, question: &Question) -> Result<Explanation, String> {
    let file = args.process.config.as_deref().unwrap_or("".as_ref());
    let loaded = evenkeel_config::load(file);
    match loaded.plan {
        Some(plan) => from_plan(question, &plan),
        None => Err(loaded.problems.render(Style::for_stderr())),
    }
}

fn rendered(explanation: &Explanation) -> String {
    let Explanation {
        target,
        servers,
        why,
        ..
    } = explanation;
    let mut text = format!("to {target}: {why}\n");
    let mut line = |what: &str, words: &[String]| {
        if !words.is_empty() {
            text.push_str(&format!("  {what:<11}{}\n", words.join(", ")));
        }
    };
    line("service", std::slice::from_ref(&explanation.service));
    line("servers", servers);
    let rules: Vec<String> = explanation.rules.iter().map(fit).collect();
    line("rules", &rules);
    line("rule test", explanation.rule_test.as_slice());
    let limit = explanation.timeout_ms.map(limit);
    line("timeout", limit.as_slice());
    let statements = explanation.statements.iter();
    let statements: Vec<String> = statements
        .map(|one| format!("{} (calls: {})", one.kind, one.calls))
        .collect();
    line("statements", &statements);
    let is_request = explanation.digest.is_empty();
    if explanation.obstacles.len() > 1 || is_request {
        let what = if is_request { "not used" } else { "obstacles" };
        line(what, &explanation.obstacles);
    }
    line("pins", &explanation.pins);
    line("changes", &explanation.changes);
    if !explanation.digest.is_empty() {
        let digest = format!("{} {}", explanation.digest, explanation.normalized);
        line("digest", &[digest]);
    }
    for assumed in &explanation.assumed {
        line("assumed", std::slice::from_ref(assumed));
    }
    text
}

fn fit(rule: &RuleFit) -> String {
    match rule.active {
        true => rule.name.clone(),
        false => format!("{} (inactive)", rule.name),
    }
}

fn limit(timeout_ms: u64) -> String {
    match timeout_ms {
        0 => "none".to_owned(),
        timeout_ms => format!("{timeout_ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_begins_with_where_and_why() {
        let explanation = Explanation {
            service: "db".to_owned(),
            target: "a replica".to_owned(),
            servers: vec!["two".to_owned(), "three".to_owned()],
            why: "read-only".to_owned(),
            rules: vec![RuleFit {
                name: "old".to_owned(),
                active: false,
            }],
            timeout_ms: Some(5),
            digest: "00000000000000fe".to_owned(),
            normalized: "select ?".to_owned(),
            ..Explanation::default()
        };
        assert_eq!(
            rendered(&explanation),
            "to a replica: read-only\n  service    db\n  servers    two, three\n  \
             rules      old (inactive)\n  timeout    5 ms\n  \
             digest     00000000000000fe select ?\n"
        );
    }
}
