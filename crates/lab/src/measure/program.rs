//! Lists the programs that take part in a comparison: each kind, and each build of Evenkeel.

use std::path::PathBuf;
use std::str::FromStr;

use super::Options;

/// Beginning of the names of Evenkeel's kinds.
const EVENKEEL: &str = "evenkeel";

/// A build of Evenkeel, named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    name: String,
    binary: PathBuf,
}

impl FromStr for Build {
    type Err = String;

    fn from_str(text: &str) -> Result<Build, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(Build {
                name: name.to_owned(),
                binary: path.into(),
            }),
            _ => Err("expected NAME=PATH, such as before=/tmp/evenkeel".to_owned()),
        }
    }
}

/// A program that takes part.
pub(super) struct Program<K> {
    pub(super) kind: K,
    /// Name in the tables.
    pub(super) name: String,
    /// Binary of Evenkeel; `None` is the one of this build.
    pub(super) binary: Option<PathBuf>,
}

/// Returns the programs of these kinds that the options ask for, with Evenkeel once for each build.
pub(super) fn programs<K: Copy>(
    kinds: &[K],
    name: impl Fn(K) -> &'static str,
    options: &Options,
) -> Vec<Program<K>> {
    let mut programs = Vec::new();
    for &kind in kinds {
        let name = name(kind);
        let builds = options.builds.iter().filter(|_| name.starts_with(EVENKEEL));
        let builds = builds.map(|build| Program {
            kind,
            name: format!("{name} {}", build.name),
            binary: Some(build.binary.clone()),
        });
        programs.push(Program {
            kind,
            name: name.to_owned(),
            binary: None,
        });
        programs.extend(builds);
    }
    let words = &options.programs;
    let is_wanted = |one: &Program<K>| words.iter().any(|word| one.name.contains(word));
    programs.retain(|one| words.is_empty() || is_wanted(one));
    programs
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn names(arguments: &[&str]) -> Vec<String> {
        let arguments = Arguments::parse_from([&["measure"], arguments].concat());
        let kinds = ["evenkeel epoll", "nginx"];
        let programs = programs(&kinds, |kind| kind, &arguments.options);
        programs.into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn each_build_of_evenkeel_is_a_program_and_words_choose_among_them() {
        let build = "--build=old=/x";
        assert_eq!(names(&[]), ["evenkeel epoll", "nginx"]);
        assert_eq!(
            names(&[build]),
            ["evenkeel epoll", "evenkeel epoll old", "nginx"]
        );
        assert_eq!(
            names(&[build, "--programs=old,nginx"]),
            ["evenkeel epoll old", "nginx"]
        );
    }

    #[test]
    fn a_build_without_a_path_is_an_error() {
        let error = "old".parse::<Build>().expect_err("it has no path");
        assert!(error.contains("NAME=PATH"), "{error}");
    }
}
