//! `evenkeel explain "SELECT …"`: where a statement would go, and why.

use std::process::ExitCode;

use clap::Args;

use super::Where;
use super::ask::{client, fail, print};
use crate::client::ClientError;
use crate::config::{self, Style};
use crate::explain::from_plan;
use crate::status::{Explanation, Question};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The statement, as a client would send it.
    sql: String,
    /// The service; not needed when only one routes statements.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The database whose functions and tables it names; not needed when only one is in use.
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// Asks the running process; if there is none and a config file is named, that has to do.
pub(super) fn explain(args: &ExplainArgs) -> ExitCode {
    let Some(client) = client(&args.place) else {
        return ExitCode::FAILURE;
    };
    let question = Question {
        sql: args.sql.clone(),
        service: args.service.clone(),
        database: args.database.clone(),
    };
    let answer = match client.explain(&question) {
        Err(ClientError::Nobody(_)) if args.place.config.is_some() => from_file(args),
        answer => answer.unwrap_or_else(|error| Err(error.to_string())),
    };
    match answer {
        Ok(explanation) if args.json => {
            // Strings alone always have a JSON form.
            print(&serde_json::to_string_pretty(&explanation).unwrap_or_default())
        }
        Ok(explanation) => print(rendered(&explanation).trim_end()),
        Err(why) => fail(&why),
    }
}

fn from_file(args: &ExplainArgs) -> Result<Explanation, String> {
    let file = args.place.config.as_deref().unwrap_or("".as_ref());
    let loaded = config::load(file);
    match loaded.plan {
        Some(plan) => from_plan(&args.sql, &plan, args.service.as_deref()),
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
    let statements = explanation.statements.iter();
    let statements: Vec<String> = statements
        .map(|one| format!("{} (calls: {})", one.kind, one.calls))
        .collect();
    line("statements", &statements);
    if explanation.obstacles.len() > 1 {
        line("obstacles", &explanation.obstacles);
    }
    line("binds", &explanation.binds);
    for assumed in &explanation.assumed {
        line("assumed", std::slice::from_ref(assumed));
    }
    text
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
            why: "a read: to a replica".to_owned(),
            ..Explanation::default()
        };
        assert_eq!(
            rendered(&explanation),
            "to a replica: a read: to a replica\n  service    db\n  servers    two, three\n"
        );
    }
}
