//! Checks which crate depends on which: the list of dependencies is closed.

use toml::Table;

use super::rust::line_of;
use super::{Problem, Tree};

/// A member's folder below `crates/`, its package, and the packages of ours it may depend on.
const CRATES: [(&str, &str, &[&str]); 10] = [
    ("wire", "evenkeel-wire", &[]),
    ("policy", "evenkeel-policy", &[]),
    (
        "sql",
        "evenkeel-sql",
        // Of policy only the words of its decisions: kinds of statements, volatility, pins.
        &["evenkeel-wire", "evenkeel-policy"],
    ),
    ("tls", "evenkeel-tls", &[]),
    ("engine", "evenkeel-engine", &["evenkeel-tls"]),
    (
        "proxy",
        "evenkeel-proxy",
        &[
            "evenkeel-engine",
            "evenkeel-tls",
            "evenkeel-sql",
            "evenkeel-wire",
            "evenkeel-policy",
        ],
    ),
    (
        "monitor",
        "evenkeel-monitor",
        &[
            "evenkeel-tls",
            "evenkeel-sql",
            "evenkeel-wire",
            "evenkeel-policy",
        ],
    ),
    (
        "config",
        "evenkeel-config",
        // Of monitor only the settings of probes and of the account, of sql only digests.
        &[
            "evenkeel-monitor",
            "evenkeel-tls",
            "evenkeel-sql",
            "evenkeel-wire",
            "evenkeel-policy",
        ],
    ),
    (
        "evenkeel",
        "evenkeel",
        // Of sql only what `explain` asks, of wire only what the console speaks, and values.
        &[
            "evenkeel-config",
            "evenkeel-proxy",
            "evenkeel-monitor",
            "evenkeel-engine",
            "evenkeel-tls",
            "evenkeel-sql",
            "evenkeel-policy",
            "evenkeel-wire",
        ],
    ),
    ("lab", "evenkeel-lab", &["evenkeel-wire"]),
];

/// Edges that only tests may have: the balancer is tested against the lab's real servers.
const FOR_TESTS: [(&str, &str); 1] = [("evenkeel", "evenkeel-lab")];

/// Crates that may run an event loop of their own, or use a library that does: the control plane's
/// tokio, and the programs. A worker of the data plane has one loop, the engine's.
const WITH_RUNTIME: [&str; 3] = ["evenkeel-monitor", "evenkeel", "evenkeel-lab"];

/// Beginnings of the names of such runtimes and of libraries on them.
const RUNTIMES: [&str; 9] = [
    "tokio",
    "hyper",
    "mysql_async",
    "axum",
    "tower",
    "async-std",
    "smol",
    "async-io",
    "compio",
];

/// Names that attract unrelated code.
const MAGNETS: [&str; 4] = ["core", "common", "util", "utils"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let manifests = tree
        .below("crates/")
        .filter(|(path, _)| path.ends_with("/Cargo.toml"));
    manifests
        .flat_map(|(path, text)| check_manifest(path, text))
        .collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Problem> {
    let folder = path
        .trim_start_matches("crates/")
        .trim_end_matches("/Cargo.toml");
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Problem::new(path, 1, format!("not TOML: {error}"))],
    };
    let package = manifest
        .get("package")
        .and_then(|package| package.get("name")?.as_str());
    let package = package.unwrap_or_default();
    if MAGNETS
        .iter()
        .any(|word| package.split('-').any(|part| part == *word))
    {
        let what = format!("a crate called `{package}` attracts everything: name what it does");
        return vec![Problem::new(path, line_with(text, package), what)];
    }
    let Some((_, _, legal)) = CRATES
        .iter()
        .find(|(f, p, _)| (*f, *p) == (folder, package))
    else {
        let what = "a crate that xtask/src/tidy/edges.rs does not know: add it there with its \
            legal dependencies, or make it a folder of an existing crate";
        return vec![Problem::new(path, 1, what)];
    };
    let illegal = dependencies(&manifest).into_iter().filter(|(name, kind)| {
        let for_tests = *kind == "dev-dependencies" && FOR_TESTS.contains(&(package, name));
        name.starts_with("evenkeel") && !legal.contains(&name.as_str()) && !for_tests
    });
    let problem = |(name, kind): (String, &str)| {
        let what = format!(
            "`{package}` must not depend on `{name}` ([{kind}]); its legal ones: {legal:?}. \
             Pass a value in, or move the code to the crate that may know both"
        );
        Problem::new(path, line_with(text, &name), what)
    };
    let mut problems: Vec<_> = illegal.map(problem).collect();
    problems.extend(runtimes(path, text, package, &manifest));
    problems
}

/// Finds runtimes in the tables of a crate without one; its tests may use them.
fn runtimes(path: &str, text: &str, package: &str, manifest: &Table) -> Vec<Problem> {
    if WITH_RUNTIME.contains(&package) {
        return Vec::new();
    }
    let is_runtime = |name: &str| RUNTIMES.iter().any(|start| name.starts_with(start));
    let found = dependencies(manifest)
        .into_iter()
        .filter(|(name, kind)| *kind != "dev-dependencies" && is_runtime(name));
    let problem = |(name, kind): (String, &str)| {
        let what = format!(
            "`{package}` must not depend on `{name}` ([{kind}]): it runs on any event loop. Use \
             event-listener, flume, or the timers and sockets of evenkeel-engine"
        );
        Problem::new(path, line_with_dependency(text, &name), what)
    };
    found.map(problem).collect()
}

fn line_with_dependency(text: &str, name: &str) -> usize {
    let at = text.find(&format!("\n{name}"));
    line_of(text, at.map_or(0, |at| at + 1))
}

/// Every dependency's package name and the kind of table it stands in, target tables included.
fn dependencies(manifest: &Table) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for (key, value) in manifest
            .get(kind)
            .and_then(|table| table.as_table())
            .into_iter()
            .flatten()
        {
            let renamed = value.get("package").and_then(|package| package.as_str());
            found.push((renamed.unwrap_or(key).to_owned(), kind));
        }
    }
    let targets = manifest
        .get("target")
        .and_then(|targets| targets.as_table());
    for (_, table) in targets.into_iter().flatten() {
        found.extend(table.as_table().map(dependencies).unwrap_or_default());
    }
    found
}

fn line_with(text: &str, name: &str) -> usize {
    let last = text.rfind(name).unwrap_or_default();
    line_of(text, last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    #[track_caller]
    fn found(folder: &str, manifest: &str, expect: &[(&str, &str)]) {
        assert_found(
            check,
            &[(&format!("crates/{folder}/Cargo.toml"), manifest)],
            expect,
        );
    }

    #[test]
    fn legal_edges_pass() {
        found(
            "proxy",
            "[package]\nname = \"evenkeel-proxy\"\n[dependencies]\n\
             evenkeel-wire.workspace = true\nevenkeel-policy.workspace = true\nslab = \"1\"\n",
            &[],
        );
        let tests =
            "[package]\nname = \"evenkeel\"\n[dev-dependencies]\nevenkeel-lab.workspace = true";
        found("evenkeel", tests, &[]);
    }

    #[test]
    fn an_edge_upwards_is_found_in_every_kind_of_table() {
        let wire = "[package]\nname = \"evenkeel-wire\"\n";
        for table in [
            "dependencies",
            "dev-dependencies",
            "target.'cfg(unix)'.build-dependencies",
        ] {
            let manifest = format!("{wire}[{table}]\nevenkeel-policy.workspace = true\n");
            found(
                "wire",
                &manifest,
                &[("crates/wire/Cargo.toml:4", "must not depend")],
            );
        }
        let renamed = format!("{wire}[dependencies]\np = {{ package = \"evenkeel-proxy\" }}\n");
        found(
            "wire",
            &renamed,
            &[("crates/wire/Cargo.toml:4", "`evenkeel-proxy`")],
        );
        let lab = "[package]\nname = \"evenkeel\"\n[dependencies]\nevenkeel-lab.workspace = true";
        found(
            "evenkeel",
            lab,
            &[("crates/evenkeel/Cargo.toml:4", "must not depend")],
        );
    }

    #[test]
    fn a_runtime_is_found_where_none_may_be_except_for_tests() {
        let manifest = |package: &str, table: &str, name: &str| {
            format!("[package]\nname = \"{package}\"\n[{table}]\n{name}.workspace = true\n")
        };
        for name in ["tokio", "tokio-rustls", "hyper-util", "mysql_async"] {
            let text = manifest("evenkeel-proxy", "dependencies", name);
            let place = "crates/proxy/Cargo.toml:4";
            found("proxy", &text, &[(place, "runs on any event loop")]);
        }
        let tests = manifest("evenkeel-proxy", "dev-dependencies", "tokio");
        found("proxy", &tests, &[]);
        let monitor = manifest("evenkeel-monitor", "dependencies", "tokio");
        found("monitor", &monitor, &[]);
    }

    #[test]
    fn an_unknown_crate_is_found() {
        let place = "crates/extra/Cargo.toml:1";
        found(
            "extra",
            "[package]\nname = \"evenkeel-extra\"\n",
            &[(place, "does not know")],
        );
    }

    #[test]
    fn a_magnet_is_found() {
        let place = "crates/core/Cargo.toml:2";
        found(
            "core",
            "[package]\nname = \"evenkeel-core\"\n",
            &[(place, "name what it does")],
        );
    }
}
