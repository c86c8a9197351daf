//! Finds experiments: built-in ones and those in the user's files.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{Experiment, parse};

/// Name and file of each experiment, in the order in which `all` runs them.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "two-databases",
        include_str!("../../../experiments/two-databases.toml"),
    ),
    (
        "router-against-haproxy",
        include_str!("../../../experiments/router-against-haproxy.toml"),
    ),
    (
        "algorithms",
        include_str!("../../../experiments/algorithms.toml"),
    ),
    (
        "galera-balancers",
        include_str!("../../../experiments/galera-balancers.toml"),
    ),
    (
        "web-round-robin",
        include_str!("../../../experiments/web-round-robin.toml"),
    ),
];

/// Returns the experiments that `words` name: names or numbers of built-in ones, `all`, or paths of
/// files.
pub(crate) fn find(words: &[String]) -> Result<Vec<Experiment>> {
    let mut found: Vec<Experiment> = Vec::new();
    for word in words {
        for experiment in named(word)? {
            if !found.iter().any(|one| one.name == experiment.name) {
                found.push(experiment);
            }
        }
    }
    Ok(found)
}

/// Returns all built-in experiments.
pub(crate) fn all() -> Result<Vec<Experiment>> {
    let read = |(name, text): &(&str, &str)| {
        parse(text).with_context(|| format!("the built-in experiment {name}"))
    };
    BUILT_IN.iter().map(read).collect()
}

fn named(word: &str) -> Result<Vec<Experiment>> {
    let mut built_in = all()?;
    if word == "all" {
        return Ok(built_in);
    }
    built_in.retain(|one| one.name == word || one.code.eq_ignore_ascii_case(word));
    if !built_in.is_empty() {
        return Ok(built_in);
    }
    let path = Path::new(word);
    if !path.is_file() {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        bail!(
            "no experiment {word:?} and no such file; built in are: {}, all",
            names.join(", ")
        );
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {word}"))?;
    Ok(vec![parse(&text).with_context(|| word.to_owned())?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_five_built_in_experiments_are_right_and_found_by_name_and_number() {
        let words = ["all", "e3", "web-round-robin"].map(str::to_owned);
        let found = find(&words).expect("they are right");
        let codes: Vec<&str> = found.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, ["E1", "E2", "E3", "E4", "E5"]);
    }

    #[test]
    fn the_example_of_the_documentation_is_right() {
        let page = include_str!("../../../experiments/README.md");
        let (_, rest) = page.split_once("```toml\n").expect("there is one");
        let (example, _) = rest.split_once("```").expect("it ends");
        let own = parse(example).expect("it is right");
        assert_eq!(own.part[0].target.len(), 3);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = find(&["two-database".to_owned()]).expect_err("it is unknown");
        assert!(
            error.to_string().contains("two-databases, router"),
            "{error}"
        );
    }
}
