//! Tests that metrics parse, keep their names, and never vanish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::admin::sample;
use crate::metrics::render;
use crate::status::{ServerStatus, Status, WorkStatus};

/// A metrics page as a scraper reads it.
#[derive(Default)]
struct Page {
    types: BTreeMap<String, String>,
    units: BTreeMap<String, String>,
    helps: BTreeSet<String>,
    /// Series (name and labels) with their values.
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn of(status: Status) -> Self {
        Self::parse(&render(&Arc::new(status)))
    }

    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let body = text
            .strip_suffix("# EOF\n")
            .expect("the page ends with # EOF");
        for line in body.lines() {
            page.take(line);
        }
        page
    }

    fn take(&mut self, line: &str) {
        let Some(comment) = line.strip_prefix("# ") else {
            let (series, value) = split_sample(line);
            let value = value
                .parse()
                .unwrap_or_else(|_| panic!("no number: {line}"));
            let before = self.samples.insert(series.to_owned(), value);
            assert!(before.is_none(), "twice: {series}");
            return;
        };
        let mut words = comment.splitn(3, ' ');
        let (kind, name, rest) = (words.next(), words.next().unwrap(), words.next().unwrap());
        let name = name.to_owned();
        match kind {
            Some("HELP") => assert!(!rest.is_empty() && self.helps.insert(name)),
            Some("TYPE") => assert!(self.types.insert(name, rest.to_owned()).is_none()),
            Some("UNIT") => assert!(self.units.insert(name, rest.to_owned()).is_none()),
            _ => panic!("unknown comment: {line}"),
        }
    }

    fn get(&self, series: &str) -> f64 {
        *self
            .samples
            .get(series)
            .unwrap_or_else(|| panic!("no {series}"))
    }

    fn counters(&self) -> BTreeSet<&str> {
        let is_counter = |series: &&String| {
            let name = series.split('{').next().unwrap();
            let family = name.strip_suffix("_total").unwrap_or("");
            self.types.get(family).is_some_and(|kind| kind == "counter")
        };
        self.samples
            .keys()
            .filter(is_counter)
            .map(String::as_str)
            .collect()
    }
}

/// Splits a line at the last space outside of quotes, into series and value.
fn split_sample(line: &str) -> (&str, &str) {
    let (mut quoted, mut escaped, mut cut) = (false, false, 0);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b' ' if !quoted => cut = at,
            _ => {}
        }
    }
    assert!(!quoted && cut > 0, "not a sample: {line}");
    (&line[..cut], &line[cut + 1..])
}

/// Returns the family that a sample belongs to, by the suffixes that its type allows.
fn family_of<'a>(page: &'a Page, series: &str) -> (&'a str, &'a str) {
    let name = series.split('{').next().unwrap();
    let suffixes = |kind: &str| match kind {
        "counter" => vec!["_total"],
        "histogram" => vec!["_bucket", "_sum", "_count"],
        "info" => vec!["_info"],
        _ => vec![""],
    };
    let found = page.types.iter().find(|(family, kind)| {
        suffixes(kind)
            .iter()
            .any(|suffix| name == format!("{family}{suffix}"))
    });
    found
        .map(|(family, kind)| (&**family, &**kind))
        .unwrap_or_else(|| panic!("no type: {series}"))
}

#[test]
fn values_are_those_of_the_status_in_base_units() {
    let page = Page::of(sample::status());
    let db1 = "{service=\"orders\",server=\"db1\"}";
    let check = |series: &str, expect: f64| assert_eq!(page.get(series), expect, "{series}");
    check(
        "evenkeel_certificate_expiry_timestamp_seconds{name=\"shop.example\"}",
        1_775_001_600.0,
    );
    check("evenkeel_certificate_failures{name=\"shop.example\"}", 2.0);
    check(
        "evenkeel_service_sessions_total{service=\"orders\"}",
        123_456.0,
    );
    check(
        "evenkeel_service_received_bytes_total{service=\"orders\"}",
        1_234_567.0,
    );
    check(
        "evenkeel_service_queue_wait_limit_seconds{service=\"orders\"}",
        5.0,
    );
    check(
        "evenkeel_service_state{service=\"orders\",state=\"degraded\"}",
        1.0,
    );
    check(
        "evenkeel_service_state{service=\"orders\",state=\"up\"}",
        0.0,
    );
    check(
        "evenkeel_service_errors_total{service=\"orders\",kind=\"reset_by_client\"}",
        5.0,
    );
    check(&format!("evenkeel_server_weight_effective{db1}"), 1.5);
    check(&format!("evenkeel_server_latency_seconds{db1}"), 0.000_64);
    check(
        &format!("evenkeel_server_probe_duration_seconds{db1}"),
        0.000_812,
    );
    check(
        "evenkeel_build_info{version=\"0.1.0\",io=\"io_uring\"}",
        1.0,
    );
    check("evenkeel_worker_sessions_current{worker=\"1\"}", 4.0);
}

#[test]
fn every_kind_of_error_is_counted_apart() {
    let page = Page::of(sample::status());
    let kinds = serde_json::to_value(&sample::status().services[0].errors).unwrap();
    for (kind, count) in kinds.as_object().unwrap() {
        let series = format!("evenkeel_service_errors_total{{service=\"orders\",kind=\"{kind}\"}}");
        assert_eq!(page.get(&series), count.as_f64().unwrap(), "{kind}");
    }
    let kinds = serde_json::to_value(&sample::status().services[0].servers[1].errors).unwrap();
    for (kind, count) in kinds.as_object().unwrap() {
        let labels = format!("service=\"orders\",server=\"db2:3306\",kind=\"{kind}\"");
        let series = format!("evenkeel_server_errors_total{{{labels}}}");
        assert_eq!(page.get(&series), count.as_f64().unwrap(), "{kind}");
    }
}

#[test]
fn histograms_are_cumulative_and_end_at_their_count() {
    let page = Page::of(sample::status());
    let bucket = |name: &str, le: &str| {
        page.get(&format!(
            "evenkeel_service_{name}_seconds_bucket{{le=\"{le}\",service=\"orders\"}}"
        ))
    };
    let connect = ["0.0001", "0.001", "0.01", "+Inf"].map(|le| bucket("connect", le));
    assert_eq!(connect, [5.0, 8.0, 9.0, 10.0]);
    let session = ["0.01", "1.0", "+Inf"].map(|le| bucket("session", le));
    assert_eq!(session, [1.0, 3.0, 7.0]);
    assert_eq!(
        page.get("evenkeel_service_connect_seconds_sum{service=\"orders\"}"),
        0.06
    );
    assert_eq!(
        page.get("evenkeel_service_connect_seconds_count{service=\"orders\"}"),
        10.0
    );
}

#[test]
fn a_service_that_left_is_not_there_twice_when_one_of_its_name_is_back() {
    let mut status = sample::status();
    let mut former = status.services[0].clone();
    former.sessions.total = 1;
    status.services.push(former);
    let page = Page::of(status);
    let total = "evenkeel_service_sessions_total{service=\"orders\"}";
    assert_eq!(page.get(total), 123_456.0);
}

#[test]
fn every_name_is_object_what_unit() {
    let page = Page::of(sample::status());
    for (family, kind) in &page.types {
        assert!(page.helps.contains(family), "no help: {family}");
        let words: Vec<&str> = family.split('_').collect();
        assert_eq!(words[0], "evenkeel", "{family}");
        let objects = [
            "build",
            "process",
            "config",
            "worker",
            "cluster",
            "service",
            "server",
            "pool",
            "user",
            "digest",
            "rule",
            "http",
            "certificate",
        ];
        assert!(objects.contains(&words[1]), "{family}: unknown object");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(family.chars().all(plain), "{family}: odd character");
        assert!(
            words.iter().all(|word| *word != "ms" && *word != "us"),
            "{family}: base units"
        );
        let last = *words.last().unwrap();
        let unit = page.units.get(family).map(String::as_str);
        let is_unit = ["seconds", "bytes"].contains(&last);
        assert_eq!(
            unit,
            is_unit.then_some(last),
            "{family}: UNIT and name disagree"
        );
        assert!(last != "total", "{family}: the encoder appends _total");
        assert!(
            kind != "histogram" || is_unit,
            "{family}: a histogram has a unit"
        );
    }
}

#[test]
fn every_sample_has_a_type_and_every_type_a_sample() {
    let page = Page::of(sample::status());
    let used: BTreeSet<&str> = page
        .samples
        .keys()
        .map(|series| family_of(&page, series).0)
        .collect();
    let declared: BTreeSet<&str> = page.types.keys().map(String::as_str).collect();
    assert_eq!(used, declared);
}

#[test]
fn a_counter_never_vanishes() {
    let busy = Page::of(sample::status());
    let mut idle = sample::status();
    for service in &mut idle.services {
        service.errors = Default::default();
        service.bytes = Default::default();
        service.sessions = Default::default();
        service.history.clear();
        for server in &mut service.servers {
            let (name, state) = (server.name.clone(), server.state);
            let work = server.work.as_ref().map(|_| WorkStatus::default());
            *server = ServerStatus {
                name,
                state,
                work,
                ..ServerStatus::default()
            };
        }
    }
    let idle = Page::of(idle);
    assert_eq!(idle.counters(), busy.counters());
    assert!(
        busy.counters().len() > 40,
        "found only {}",
        busy.counters().len()
    );
}

#[test]
fn a_fresh_process_without_services_has_a_page_too() {
    let page = Page::of(Status::default());
    assert_eq!(page.types["evenkeel_service_sessions"], "counter");
    assert_eq!(page.get("evenkeel_config_problems"), 0.0);
}

#[test]
fn awkward_names_are_escaped() {
    let page = Page::of(sample::status());
    let series = "evenkeel_service_sessions_total{service=\
        \"a \\\"quoted\\\" \\\\ name\\nwith <b>markup</b>\"}";
    assert_eq!(page.get(series), 0.0);
}

#[test]
fn a_removed_server_does_not_double_its_successor() {
    let mut status = sample::status();
    let mut removed = status.services[0].servers[0].clone();
    removed.sessions.total = 1;
    status.services[0].servers.push(removed);
    let page = Page::of(status);
    let series = "evenkeel_server_sessions_total{service=\"orders\",server=\"db1\"}";
    assert_eq!(page.get(series), 100_000.0);
}

#[test]
fn the_document_lists_every_metric_and_no_other() {
    let document = include_str!("../../../../docs/api.md");
    let page = Page::of(sample::status());
    let suffix = |kind: &str| match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    let real: BTreeSet<String> = page
        .types
        .iter()
        .map(|(family, kind)| format!("{family}{}", suffix(kind)))
        .collect();
    let named = document
        .split('`')
        .filter(|word| word.starts_with("evenkeel_"));
    let named: BTreeSet<String> = named
        .filter(|word| !word.contains('<'))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, real);
}
