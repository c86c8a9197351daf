//! Reads `[service.health]` and `[service.monitor]`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use evenkeel_monitor::probe::{AccountSource, HttpProbe};
use toml::de::DeValue;

use crate::plan::{Health, Monitor, Probe};
use crate::problem::Problems;
use crate::reader::{Table, Value, wrong_type};
use crate::setting::Settings;
use crate::sources::Sources;

/// Keys that every probe has.
const PROBE_KEYS: [&str; 2] = ["port", "tls"];

/// Reads the table. `default` is the probe of a table without the key.
pub(crate) fn read(table: &Table<'_>, default: &'static str, problems: &mut Problems) -> Health {
    let mut health = Health {
        probe: read_probe(table, default, problems),
        ..Health::of(table, problems)
    };
    if table.value("timeout_ms").is_none() {
        health.timeout_ms = health.timeout_ms.min(health.interval_ms);
    }
    if table.value("dead_interval_ms_max").is_none() {
        health.dead_interval_ms_max = health.dead_interval_ms_max.max(health.interval_ms);
    }
    check_times(&health, table, problems);
    health
}

fn check_times(health: &Health, table: &Table<'_>, problems: &mut Problems) {
    let interval_ms = health.interval_ms;
    if health.dead_interval_ms_max < interval_ms {
        let message = "`dead_interval_ms_max` is less than `interval_ms`";
        let help = format!(
            "the probe interval of a dead server only increases: use {interval_ms} \
             or more"
        );
        let span = table.value_span("dead_interval_ms_max");
        problems.error(&span, "E_ORDER", message, help);
    }
    if health.timeout_ms > interval_ms {
        let message = "`timeout_ms` is more than `interval_ms`";
        let help = format!(
            "a frozen server is detected after `fall` times `timeout_ms`; use {interval_ms} or \
             less to detect it sooner"
        );
        let span = table.value_span("timeout_ms");
        problems.warning(&span, "W_TIMEOUT", message, help);
    }
}

fn read_probe(table: &Table<'_>, default: &'static str, problems: &mut Problems) -> Option<Probe> {
    let word = match table.value("probe") {
        None => default,
        Some(_) => match table.word("probe", problems) {
            Some(word) => word,
            // Without a valid word it is unknown which other keys are valid.
            None => return Health::default().probe,
        },
    };
    refuse_other_keys(word, table, problems);
    let mut probe = Probe::named(word)?;
    if let (Some(query), Some(text)) = (probe.query_mut(), table.text("query", problems)) {
        text.clone_into(query);
    }
    match &mut probe {
        Probe::Http(http) => read_http(http, table, problems),
        Probe::Grpc(grpc) => {
            grpc.service = table
                .text("grpc_service", problems)
                .unwrap_or_default()
                .to_owned();
            grpc.host = table.text("host", problems).map(str::to_owned);
        }
        Probe::Tcp(_) | Probe::Mysql(_) | Probe::Postgres(_) => {}
    }
    Some(probe)
}

/// Returns the keys that a probe uses.
fn keys_of(word: &str) -> Vec<&'static str> {
    let probe = Probe::named(word);
    let keys = probe.map(|probe| PROBE_KEYS.iter().chain(probe.keys()).copied().collect());
    keys.unwrap_or_default()
}

/// Reports keys of other probes.
fn refuse_other_keys(word: &'static str, table: &Table<'_>, problems: &mut Problems) {
    let own = keys_of(word);
    let all: BTreeSet<_> = Probe::NAMES.iter().flat_map(|name| keys_of(name)).collect();
    let is_wrong = |key: &&str| table.value(key).is_some() && !own.contains(key);
    for key in all.into_iter().filter(is_wrong) {
        let mut wanted = Probe::NAMES.to_vec();
        wanted.retain(|name| keys_of(name).contains(&key));
        let wanted = wanted.join("\" or \"");
        let message = format!("`{key}` is not used with `probe = \"{word}\"`");
        let help = format!("set `probe = \"{wanted}\"`, or remove `{key}`");
        problems.error(&table.key_span(key), "E_PROBE_KEY", message, help);
    }
}

fn read_http(probe: &mut HttpProbe, table: &Table<'_>, problems: &mut Problems) {
    if let Some(path) = table.text("path", problems) {
        path.clone_into(&mut probe.path);
    }
    if !probe.path.starts_with('/') || probe.path.contains(' ') {
        let message = format!("`{}` is not a path", probe.path);
        let help = "begin it with `/` and write spaces as `%20`";
        problems.error(&table.value_span("path"), "E_VALUE", message, help);
    }
    probe.host = table.text("host", problems).map(str::to_owned);
    probe.body = table.text("body", problems).map(str::to_owned);
    if table.value("status").is_none() {
        return;
    }
    let elements = table.elements("status");
    probe.status = elements
        .iter()
        .filter_map(|value| status_range(value, problems))
        .collect();
    if elements.is_empty() {
        let help = "write `status = \"200-399\"` or `status = [200, 204]`";
        problems.error(
            &table.value_span("status"),
            "E_VALUE",
            "`status` is empty",
            help,
        );
    }
}

fn status_range(value: &Value<'_>, problems: &mut Problems) -> Option<RangeInclusive<u16>> {
    let help = "write `status = 200`, `status = \"200-399\"` or `status = [200, \"300-399\"]`";
    let (text, number);
    let range = match value.get_ref() {
        DeValue::Integer(integer) => {
            number = integer.to_string();
            (number.as_str(), number.as_str())
        }
        DeValue::String(string) => {
            text = string.as_ref();
            text.split_once('-').unwrap_or((text, text))
        }
        _ => {
            wrong_type("status", "numbers or ranges", value, help, problems);
            return None;
        }
    };
    let parsed = |text: &str| {
        text.trim()
            .parse::<u16>()
            .ok()
            .filter(|n| (100..=599).contains(n))
    };
    let range = parsed(range.0)
        .zip(parsed(range.1))
        .filter(|(low, high)| low <= high);
    if range.is_none() {
        let message = "`status` takes HTTP status codes from 100 to 599";
        problems.error(&Some(value.span()), "E_RANGE", message, help);
    }
    range.map(|(low, high)| low..=high)
}

/// Reads the account, and its password from the named file.
pub(crate) fn read_monitor(
    (source, table): (AccountSource, &Table<'_>),
    sources: &Sources,
    problems: &mut Problems,
) -> Option<Monitor> {
    let password = sources.secret(table, "password", "password_file", problems);
    let settings = Monitor::of(table, problems);
    let user = table.text("user", problems);
    if table.value("user").is_none() {
        let help = "add `user = \"…\"`, the account used by probes";
        problems.error(
            &table.span,
            "E_MISSING_KEY",
            "the monitor has no `user`",
            help,
        );
    }
    Some(Monitor {
        user: user?.to_owned(),
        password: password.unwrap_or_default(),
        source,
        ..settings
    })
}
