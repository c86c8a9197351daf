//! Makes the JSON schema of the config file for editors, and compares it with the program.

use std::fs;
use std::sync::LazyLock;

use evenkeel_config::ReportedProblem;
use evenkeel_config::keys::{Absent, Key, Kind, ROOT, Section};
use serde_json::{Map, Value, json};

use super::reference::{compare, docs};
use super::validator::is_valid;

const FILE: &str = "evenkeel.schema.json";

/// Words of `protocol`.
const PROTOCOLS: [&str; 4] = ["tcp", "http", "postgres", "mysql"];

/// Returns whether a schema can find the problem.
fn is_for_schema(problem: &ReportedProblem) -> bool {
    let ReportedProblem { code, message, .. } = problem;
    let help = problem.help.as_deref().unwrap_or_default();
    match code.as_str() {
        // Another file, or a route of a tcp service.
        "E_PROTOCOL_KEY" => !message.starts_with('/') && !help.starts_with("a route of a tcp"),
        "E_RANGE" => message.contains("but must be") && !message.ends_with("whole seconds"),
        code => ["E_UNKNOWN_KEY", "E_TYPE", "E_UNKNOWN_WORD"].contains(&code),
    }
}

fn schema() -> Value {
    let mut schema = table(&ROOT, None);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Configuration of Evenkeel");
    schema
}

/// Returns the schema of a table of the services of a protocol, or of all protocols.
fn table(section: &Section, protocol: Option<&str>) -> Value {
    let is_of = |key: &&Key| {
        protocol.is_none_or(|one| key.protocols.is_empty() || key.protocols.contains(&one))
    };
    let mut properties: Map<String, Value> = Map::new();
    for key in section.keys().filter(is_of) {
        let schema = property(key, protocol);
        let schema = match properties.remove(key.name) {
            Some(other) => json!({"anyOf": [other, schema]}),
            None => schema,
        };
        properties.insert(key.name.to_owned(), schema);
    }
    let required = section
        .keys()
        .filter(|key| matches!(key.absent, Absent::Required));
    let required: Vec<&str> = required.map(|key| key.name).collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if protocol.is_none() && section.key("protocol").is_some() {
        schema["allOf"] = PROTOCOLS.map(|word| of_protocol(section, word)).into();
    }
    schema
}

/// Returns the condition that a table with this protocol has no key of others.
fn of_protocol(section: &Section, protocol: &str) -> Value {
    let limited = section.keys().filter(|key| !key.protocols.is_empty());
    let keys = limited.filter_map(|key| {
        let mut own = section.keys().filter(|one| one.name == key.name);
        let is_one = own.clone().count() == 1;
        let own = own.find(|one| one.protocols.contains(&protocol));
        let schema = own.map_or(json!(false), |own| property(own, Some(protocol)));
        let is_known = is_one && schema == property(key, None);
        (!is_known).then(|| (key.name.to_owned(), schema))
    });
    let keys: Map<String, Value> = keys.collect();
    // A service of a cluster has the protocol of the cluster.
    let is_default = protocol == PROTOCOLS[0];
    let needed = if is_default {
        json!({"not": {"required": ["cluster"]}})
    } else {
        json!({"required": ["protocol"]})
    };
    json!({
        "if": {"allOf": [needed, {"properties": {"protocol": {"const": protocol}}}]},
        "then": {"properties": keys},
    })
}

fn property(key: &Key, protocol: Option<&str>) -> Value {
    let mut schema = values(key.kind, protocol);
    let description = description(key);
    if !description.is_empty() {
        schema["description"] = json!(description);
    }
    if let Absent::Default(written) = key.absent {
        let line = format!("value = {}", written());
        let default: Option<toml::Table> = line.parse().ok();
        if let Some(default) = default.and_then(|mut table| table.remove("value")) {
            schema["default"] = json!(default);
        }
    }
    schema
}

fn values(kind: Kind, protocol: Option<&str>) -> Value {
    let text = || json!({"type": "string", "minLength": 1});
    match kind {
        Kind::Number(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Word(words) => json!({"type": "string", "enum": words}),
        Kind::Words(words) => json!({"anyOf": [
            {"enum": words},
            {"type": "array", "items": {"enum": words}},
        ]}),
        Kind::WordOrTexts(words, _) => json!({"anyOf": [
            {"enum": words},
            {"type": "array", "items": {"type": "string"}},
        ]}),
        Kind::Text(_) => text(),
        Kind::Texts(_) => json!({"type": ["string", "array"], "items": {"type": "string"}}),
        Kind::Codes(_) => json!({
            "type": ["integer", "string", "array"],
            "items": {"type": ["integer", "string"]},
        }),
        Kind::Entries(_, section) => {
            let entry = json!({"anyOf": [text(), table(section, protocol)]});
            json!({"anyOf": [text(), {"type": "array", "items": entry}]})
        }
        Kind::Entry(_, section) => json!({"anyOf": [text(), table(section, protocol)]}),
        Kind::Names(_) => json!({
            "type": "object",
            "additionalProperties": {
                "type": ["string", "array", "boolean"],
                "items": {"type": "string"},
                "not": {"const": false},
            },
        }),
        Kind::Table(section) => table(section, protocol),
        Kind::Tables(section) => json!({"type": "array", "items": table(section, protocol)}),
        Kind::NamedTables(section) => json!({
            "type": "object",
            "additionalProperties": table(section, protocol),
        }),
    }
}

/// Returns the documentation without its links, after the protocols that have the key.
fn description(key: &Key) -> String {
    let lines: Vec<_> = key.doc.iter().map(|line| line.trim()).collect();
    let mut text = lines.join(" ");
    while let Some(at) = text.find("](") {
        let begin = text[..at].rfind('[').expect("a link begins");
        let end = at + text[at..].find(')').expect("a link ends");
        text = format!(
            "{}{}{}",
            &text[..begin],
            &text[begin + 1..at],
            &text[end + 1..]
        );
    }
    match key.protocols {
        [] => text,
        protocols if text.is_empty() => format!("{}.", protocols.join(", ")),
        protocols => format!("{}: {text}", protocols.join(", ")),
    }
}

#[test]
fn the_schema_in_the_documentation_is_that_of_the_program() {
    let text = serde_json::to_string_pretty(&schema()).expect("it is JSON");
    compare(FILE, &format!("{text}\n"));
}

/// Compares what the program found in a file with what the schema finds.
pub(crate) fn compare_with_check(text: &str, is_accepted: bool, problems: &[ReportedProblem]) {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    let Ok(file) = text.parse::<toml::Table>() else {
        return;
    };
    let is_valid = is_valid(&json!(file), &SCHEMA);
    assert!(is_valid || !is_accepted, "the schema refuses\n{text}");
    if let Some(problem) = problems.iter().find(|one| is_for_schema(one)) {
        assert!(!is_valid, "the schema accepts\n{text}\n{problem:#?}");
    }
}

#[test]
fn the_schema_accepts_the_examples_of_the_documentation() {
    let root = docs().join("..");
    let mut count = 0;
    for folder in ["", "docs", "examples"] {
        for entry in fs::read_dir(root.join(folder)).expect("a folder") {
            let path = entry.expect("a file").path();
            let name = path.to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap_or_default();
            let blocks = match name.rsplit_once('.') {
                Some((_, "md")) => blocks(&text),
                Some((_, "toml")) if folder == "examples" => vec![text.as_str()],
                _ => Vec::new(),
            };
            for block in blocks {
                compare_with_check(&completed(block), true, &[]);
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count}: are the blocks found?");
}

/// Returns the blocks of TOML on a page, except those that are not of the config file.
fn blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    let of_config = blocks.filter(|(opening, block)| {
        let words: Vec<_> = opening.split(' ').collect();
        let is_other = words.contains(&"other") || block.contains("[users.");
        words[0] == "toml" && !is_other
    });
    of_config.map(|(_, block)| block).collect()
}

/// Returns a part of a file as a file: with the service to which it belongs.
fn completed(part: &str) -> String {
    if part.contains("[[service]]") || part.contains("[[cluster]]") {
        return part.to_owned();
    }
    let is_of_root = ROOT
        .keys()
        .any(|key| part.starts_with(&format!("[{}]", key.name)));
    let service = "[[service]]\nname = 'a'\ncluster = 'c'\n";
    match is_of_root {
        true => format!("{part}\n{service}"),
        false => format!("{service}{part}"),
    }
}
