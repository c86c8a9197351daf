//! Checks that each new algorithm and probe is registered in its list.

use super::rust::{code, find_words};
use super::{Problem, Tree};

/// Files that are no variants.
const SHARED: [&str; 2] = ["laws", "tests"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let balance = "crates/policy/src/balance";
    let probe = "crates/monitor/src/probe";
    let mut problems = unlisted(tree, balance, |name, list| {
        let configured = name.replace('_', "-");
        let named = list.contains(&format!("\"{configured}\""));
        (!named).then(|| format!("no algorithm called \"{configured}\": add its line"))
    });
    problems.extend(unlisted(tree, probe, |_, _| None));
    problems
}

/// The files of `folder` that `folder.rs` does not declare, or declares without their line.
fn unlisted(
    tree: &Tree,
    folder: &str,
    line_missing: impl Fn(&str, &str) -> Option<String>,
) -> Vec<Problem> {
    let list_path = format!("{folder}.rs");
    let list = tree.text(&list_path).unwrap_or_default();
    let list_code = code(list);
    let mut problems = Vec::new();
    for (path, _) in tree
        .below(&format!("{folder}/"))
        .filter(|(path, _)| path.ends_with(".rs"))
    {
        let name = path
            .trim_start_matches(folder)
            .trim_matches('/')
            .trim_end_matches(".rs");
        if name.contains('/') || SHARED.contains(&name) {
            continue;
        }
        let declared = find_words(&list_code, &format!("mod {name}"))
            .next()
            .is_some();
        if !declared {
            let what = format!("{list_path} does not declare `{name}`: add its line");
            problems.push(Problem::new(path, 1, what));
        } else if let Some(what) = line_missing(name, list) {
            problems.push(Problem::new(&list_path, 1, what));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const LIST: (&str, &str) = (
        "crates/policy/src/balance.rs",
        "mod random_two;\nalgorithms! { RandomTwo \"random-two\" random_two::RandomTwo; }\n",
    );
    const ALGORITHM: (&str, &str) = ("crates/policy/src/balance/random_two.rs", "");
    const LAWS: (&str, &str) = ("crates/policy/src/balance/laws.rs", "");

    #[test]
    fn an_algorithm_with_its_line_passes() {
        assert_found(check, &[LIST, ALGORITHM, LAWS], &[]);
    }

    #[test]
    fn an_algorithm_without_its_line_is_found() {
        let file = "crates/policy/src/balance/lottery.rs";
        let place = "crates/policy/src/balance/lottery.rs:1";
        assert_found(
            check,
            &[LIST, ALGORITHM, (file, "")],
            &[(place, "add its line")],
        );
        let unnamed = (LIST.0, "mod random_two;\nuse random_two::RandomTwo;\n");
        let place = "crates/policy/src/balance.rs:1";
        assert_found(check, &[unnamed, ALGORITHM], &[(place, "\"random-two\"")]);
    }

    #[test]
    fn an_undeclared_probe_is_found() {
        let probe = ("crates/monitor/src/probe/redis.rs", "");
        let place = "crates/monitor/src/probe/redis.rs:1";
        let called = (
            "crates/monitor/src/probe.rs",
            "mod redis;\nfn ask() { redis::ask() }\n",
        );
        assert_found(check, &[called, probe], &[]);
        for text in ["", "// mod redis;\n", "mod redis_cluster;\n"] {
            let list = ("crates/monitor/src/probe.rs", text);
            assert_found(check, &[list, probe], &[(place, "add its line")]);
        }
    }
}
