//! Reads `servers`: addresses as strings, or tables with an address and other keys.

use toml::de::DeValue;

use crate::keys;
use crate::plan::{Address, ServerPlan};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, Value, wrong_type};
use crate::setting::Settings;

/// Places of the parts of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSpans {
    pub(crate) address: SourceSpan,
    pub(crate) name: SourceSpan,
    pub(crate) max_connections: SourceSpan,
}

/// Reads one entry. Returns `None` if it is not usable.
pub(crate) fn read(
    value: &Value<'_>,
    problems: &mut Problems,
) -> Option<(ServerPlan, ServerSpans)> {
    match value.get_ref() {
        DeValue::String(text) => {
            let span = Some(value.span());
            let address = address(text, &span, problems)?;
            let spans = ServerSpans {
                address: span.clone(),
                name: span.clone(),
                max_connections: span,
            };
            Some((ServerPlan::at(address), spans))
        }
        DeValue::Table(values) => read_table(
            &Table::open(&keys::SERVER, values, value.span(), problems),
            problems,
        ),
        _ => {
            let help = "write `\"db1:3306\"` or `{ address = \"db1:3306\", weight = 2 }`";
            wrong_type("servers", "addresses or tables", value, help, problems);
            None
        }
    }
}

fn read_table(table: &Table<'_>, problems: &mut Problems) -> Option<(ServerPlan, ServerSpans)> {
    let name = table
        .text("name", problems)
        .filter(|_| check_name(table, "server", problems));
    let settings = ServerPlan::of(table, problems);
    if table.value("address").is_none() {
        let help = "add `address = \"db1:3306\"`";
        problems.error(
            &table.span,
            "E_MISSING_KEY",
            "this server has no `address`",
            help,
        );
    }
    let text = table.text("address", problems)?;
    let span = table.value_span("address");
    let address = address(text, &span, problems)?;
    let server = ServerPlan {
        name: name.map_or_else(|| address.to_string(), str::to_owned),
        address,
        ..settings
    };
    let spans = ServerSpans {
        name: table.value_span("name").or_else(|| span.clone()),
        max_connections: table.value_span("max_connections").or_else(|| span.clone()),
        address: span,
    };
    Some((server, spans))
}

/// Reads the required name of a table. `users` lists what uses it.
pub(crate) fn read_name(
    table: &Table<'_>,
    whose: &str,
    users: &str,
    problems: &mut Problems,
) -> String {
    if table.value("name").is_none() && !table.has_unknown {
        let message = format!("this {whose} has no `name`");
        let help = format!("add `name = \"…\"`; it is used in {users}");
        problems.error(&table.span, "E_MISSING_KEY", message, help);
    }
    let name = table.text("name", problems).unwrap_or_default();
    if !name.is_empty() {
        check_name(table, whose, problems);
    }
    name.to_owned()
}

/// Checks a name, which must be valid in URLs, metrics and `service/server`. Call only if the key's
/// value is a string.
fn check_name(table: &Table<'_>, whose: &str, problems: &mut Problems) -> bool {
    let Some(name) = table
        .value("name")
        .and_then(|value| value.get_ref().as_str())
    else {
        return false;
    };
    // The default name of a server is its address, so its characters are permitted for servers.
    let extra: &[char] = if whose == "server" {
        &['.', '_', '-', ':', '[', ']']
    } else {
        &['.', '_', '-']
    };
    let good = |c: char| c.is_ascii_alphanumeric() || extra.contains(&c);
    if name.len() <= 64 && name.chars().all(good) {
        return true;
    }
    let message = format!("`{name}` is not a valid {whose} name");
    let help = "up to 64 letters (a-z), digits, `.`, `_` and `-`";
    problems.error(&table.value_span("name"), "E_NAME", message, help);
    false
}

pub(crate) fn address(text: &str, span: &SourceSpan, problems: &mut Problems) -> Option<Address> {
    match text.parse() {
        Ok(address) => Some(address),
        Err(super::AddressError { message, help }) => {
            problems.error(span, "E_ADDRESS", message, help);
            None
        }
    }
}
