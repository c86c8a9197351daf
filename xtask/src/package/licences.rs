//! Collects the licenses of the libraries that are linked into the program, with their texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

const PROGRAM: &str = "evenkeel";

/// Prefixes of the names of files that a license may require to be distributed.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Lists all libraries with their licenses, then each text once, with the libraries that it belongs
/// to.
pub(super) fn text(metadata: &Value) -> Result<String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in linked(metadata)? {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        let found = notices(Path::new(field("manifest_path")))?;
        if field("license").is_empty() && found.is_empty() {
            bail!("{name} names no licence and has no text of one: it cannot be passed on");
        }
        let _ = writeln!(list, "{name}: {}", field("license"));
        for notice in found {
            texts.entry(notice).or_default().push(name.clone());
        }
    }
    let mut out = format!("Libraries linked into {PROGRAM}, and their licences\n\n{list}");
    for (notice, names) in texts {
        let _ = write!(
            out,
            "\n{}\n{}\n\n{notice}\n",
            "=".repeat(78),
            names.join(", ")
        );
    }
    Ok(out)
}

/// Returns the external packages that the program is built from, without those that only tests and
/// builds need.
fn linked(metadata: &Value) -> Result<Vec<&Value>> {
    let packages = list_of(&metadata["packages"]);
    let by_id: BTreeMap<&str, &Value> = packages.iter().map(|p| (id(p), p)).collect();
    let nodes = list_of(&metadata["resolve"]["nodes"]);
    let nodes: BTreeMap<&str, &Value> = nodes.iter().map(|node| (id(node), node)).collect();
    let program = packages.iter().find(|package| package["name"] == PROGRAM);
    let mut ahead = vec![id(
        program.context("cargo metadata does not know the program")?
    )];
    let mut seen = BTreeSet::new();
    while let Some(next) = ahead.pop() {
        if !seen.insert(next) {
            continue;
        }
        let node = nodes.get(next);
        for dependency in node.map_or(&[][..], |node| list_of(&node["deps"])) {
            if list_of(&dependency["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
            {
                ahead.push(dependency["pkg"].as_str().unwrap_or_default());
            }
        }
    }
    let found = seen.iter().filter_map(|id| by_id.get(id).copied());
    // Packages of this workspace have no source.
    let mut linked: Vec<&Value> = found
        .filter(|package| !package["source"].is_null())
        .collect();
    linked.sort_by_key(|package| package["name"].as_str());
    Ok(linked)
}

fn id(value: &Value) -> &str {
    value["id"].as_str().unwrap_or_default()
}

fn list_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn notices(manifest: &Path) -> Result<Vec<String>> {
    let directory = manifest.parent().unwrap_or(manifest);
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}: cargo fetch", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file() && is_notice(path));
    files.sort();
    let texts = files.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let texts = texts.iter().map(|bytes| String::from_utf8_lossy(bytes));
    Ok(texts
        .map(|text| text.replace("\r\n", "\n").trim().to_owned())
        .collect())
}

fn is_notice(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_uppercase();
    NAMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, source: Option<&str>) -> Value {
        json!({ "id": name, "name": name, "source": source })
    }

    fn uses(name: &str, kind: Option<&str>) -> Value {
        json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] })
    }

    #[test]
    fn what_is_linked_is_listed_and_what_only_tests_need_is_not() {
        let elsewhere = Some("registry");
        let metadata = json!({
            "packages": [
                package("evenkeel", None), package("ours", None), package("far", elsewhere),
                package("near", elsewhere), package("tests", elsewhere),
            ],
            "resolve": { "nodes": [
                { "id": "evenkeel", "deps": [uses("ours", None), uses("tests", Some("dev"))] },
                { "id": "ours", "deps": [uses("near", None)] },
                { "id": "near", "deps": [uses("far", None), uses("evenkeel", Some("dev"))] },
            ] },
        });
        let names: Vec<_> = linked(&metadata).unwrap().iter().map(|p| id(p)).collect();
        assert_eq!(names, ["far", "near"]);
    }
}
