//! Reads `[[service.route]]`: the requests that a route takes, and their treatment. The routes of a
//! tcp service are in `tls`.

mod auth;
mod fields;
mod mirror;
mod target;
pub(crate) mod tls;

use evenkeel_policy::http::rate::RateLimit;
use evenkeel_policy::http::rewrite::Rewrite;
use evenkeel_policy::http::route::{
    BadPattern, Conditions, HeaderCondition, HostPattern, PathPattern, check_path,
};
use toml::de::DeValue;

use crate::keys;
use crate::networks::networks;
use crate::plan::{RouteLimitsPlan, RoutePlan, RouteTarget, default_name};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, wrong_type};
use crate::setting::Settings;
use crate::sources::Sources;

pub(crate) use fields::is_token;
pub(crate) use target::read_file;

/// Keys that change a request on its way to a server.
const FORWARD_KEYS: [&str; 7] = [
    "strip_prefix",
    "replace_prefix",
    "set_request",
    "remove_request",
    "body_bytes_max",
    "request_ms",
    "mirror",
];

/// Keys of these that change the path.
const PATH_KEYS: [&str; 2] = ["strip_prefix", "replace_prefix"];

/// Places of a route and of its parts.
#[derive(Debug)]
pub(crate) struct RouteSpans {
    pub(crate) route: SourceSpan,
    pub(crate) to: SourceSpan,
    pub(crate) mirror: SourceSpan,
}

impl RouteSpans {
    fn of(table: &Table<'_>) -> Self {
        Self {
            route: table.span.clone(),
            to: table.value_span("to"),
            mirror: table.value_span("mirror"),
        }
    }
}

/// Reads the routes of a service, in order.
pub(crate) fn read(
    service: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> (Vec<RoutePlan>, Vec<RouteSpans>) {
    let mut routes = Vec::new();
    let mut spans = Vec::new();
    for table in service.tables("route", &keys::ROUTE, problems) {
        routes.push(read_one(&table, routes.len() + 1, sources, problems));
        spans.push(RouteSpans::of(&table));
    }
    (routes, spans)
}

fn read_one(
    table: &Table<'_>,
    number: usize,
    sources: &Sources,
    problems: &mut Problems,
) -> RoutePlan {
    let conditions = Conditions {
        hosts: read_hosts(table, problems),
        path: read_path(table, problems),
        methods: read_methods(table, problems),
        headers: read_headers(table, problems),
    };
    let target = target::read(table, sources, problems);
    let name = read_name(table, problems);
    let route = RoutePlan {
        name: name.unwrap_or_else(|| default_name(&conditions, number)),
        rewrite: read_rewrite(table, &conditions.path, problems),
        conditions,
        target,
        set_request: fields::set(table, "set_request", problems),
        set_response: fields::set(table, "set_response", problems),
        remove_request: fields::removed(table, problems),
        allow_from: read_allow_from(table, problems),
        basic_auth: auth::read(table, sources, problems),
        rate: read_rate(table, problems),
        limits: RouteLimitsPlan::of(table, problems),
        mirror: mirror::read(table, problems),
    };
    check_forwarding(table, &route.target, problems);
    route
}

fn read_name(table: &Table<'_>, problems: &mut Problems) -> Option<String> {
    let name = table.text("name", problems)?;
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        let message = "`name` is empty, longer than 100 bytes, or has control characters";
        let help = "use a short word, such as `api`";
        problems.error(&table.value_span("name"), "E_NAME", message, help);
    }
    Some(name.to_owned())
}

/// Returns the texts of an array, or a single one, with their places.
fn texts<'a>(
    table: &Table<'a>,
    key: &str,
    help: &str,
    problems: &mut Problems,
) -> Vec<(&'a str, SourceSpan)> {
    let mut texts = Vec::new();
    let elements = table.elements(key);
    if table.value(key).is_some() && elements.is_empty() {
        let message = format!("`{key}` is empty");
        problems.error(&table.value_span(key), "E_VALUE", message, help);
    }
    for value in elements {
        match value.get_ref().as_str() {
            Some(text) => texts.push((text, Some(value.span()))),
            None => wrong_type(
                key,
                "a string or an array of strings",
                value,
                help,
                problems,
            ),
        }
    }
    texts
}

fn bad_pattern(text: &str, bad: BadPattern, span: &SourceSpan, problems: &mut Problems) {
    let message = format!("`{text}` {}", bad.why);
    problems.error(span, "E_VALUE", message, bad.help);
}

fn read_hosts(table: &Table<'_>, problems: &mut Problems) -> Vec<HostPattern> {
    let help = "write `host = \"shop.example\"`, or an array such as \
                `[\"shop.example\", \"*.shop.example\"]`";
    let mut hosts: Vec<HostPattern> = Vec::new();
    for (text, span) in texts(table, "host", help, problems) {
        match HostPattern::parse(text) {
            Ok(host) if hosts.contains(&host) => {
                let message = format!("`{text}` is listed twice");
                problems.warning(&span, "W_NO_EFFECT", message, "remove one of them");
            }
            Ok(host) => hosts.push(host),
            Err(bad) => bad_pattern(text, bad, &span, problems),
        }
    }
    hosts
}

fn read_path(table: &Table<'_>, problems: &mut Problems) -> PathPattern {
    let Some(text) = table.text("path", problems) else {
        return PathPattern::Any;
    };
    match PathPattern::parse(text) {
        Ok(path) => path,
        Err(bad) => {
            bad_pattern(text, bad, &table.value_span("path"), problems);
            PathPattern::Any
        }
    }
}

fn read_methods(table: &Table<'_>, problems: &mut Problems) -> Vec<String> {
    let help = "write `methods = [\"GET\", \"HEAD\"]`";
    let mut methods = Vec::new();
    for (text, span) in texts(table, "methods", help, problems) {
        let why = if !is_token(text) {
            "is not a method"
        } else if text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            "has small letters, and methods are case-sensitive"
        } else if text == "CONNECT" {
            "is refused before the choice of a route"
        } else {
            methods.push(text.to_owned());
            continue;
        };
        let help = match text.to_ascii_uppercase() {
            upper if is_token(&upper) && upper != "CONNECT" => format!("write `{upper}`"),
            _ => help.to_owned(),
        };
        problems.error(&span, "E_VALUE", format!("`{text}` {why}"), help);
    }
    methods
}

fn read_headers(table: &Table<'_>, problems: &mut Problems) -> Vec<HeaderCondition> {
    let help = "write `headers = { X-Version = \"2\" }`, or `{ X-Beta = true }` for any value";
    let mut conditions = Vec::new();
    for entry in table.entries("headers", help, problems) {
        let value = match entry.value.get_ref() {
            DeValue::String(text) => Some(text.as_ref().to_owned()),
            DeValue::Boolean(true) => None,
            _ => {
                wrong_type(
                    entry.name,
                    "a string or `true`",
                    entry.value,
                    help,
                    problems,
                );
                continue;
            }
        };
        if fields::check_name(entry.name, &Some(entry.span.clone()), problems) {
            let name = entry.name.to_ascii_lowercase();
            conditions.push(HeaderCondition { name, value });
        }
    }
    conditions
}

fn read_rewrite(table: &Table<'_>, path: &PathPattern, problems: &mut Problems) -> Rewrite {
    let strip = prefix(table, "strip_prefix", problems);
    let replace = prefix(table, "replace_prefix", problems);
    match (strip, replace) {
        (Some(_), Some(_)) => {
            let message = "`strip_prefix` and `replace_prefix` exclude each other";
            let help = "keep one; `replace_prefix` replaces the route's `path`";
            problems.error(&table.key_span("replace_prefix"), "E_BOTH", message, help);
            Rewrite::Keep
        }
        (Some(strip), None) => {
            let rewrite = Rewrite::strip(strip);
            if !rewrite.applies_to_all(path) {
                let message = format!("`path` does not begin with `{strip}`");
                let help = format!("set `path = \"{strip}\"`, or a path below it");
                problems.error(&table.value_span("strip_prefix"), "E_VALUE", message, help);
            }
            rewrite
        }
        (None, Some(replace)) => match path {
            PathPattern::Any => {
                let message = "`replace_prefix` replaces `path`, which this route does not have";
                let help = "add `path = \"/…\"`; `path = \"/\"` puts the prefix before each path";
                let span = table.key_span("replace_prefix");
                problems.error(&span, "E_MISSING_KEY", message, help);
                Rewrite::Keep
            }
            PathPattern::Prefix(path) | PathPattern::Exact(path) => Rewrite::replace(path, replace),
        },
        (None, None) => Rewrite::Keep,
    }
}

fn prefix<'a>(table: &Table<'a>, key: &str, problems: &mut Problems) -> Option<&'a str> {
    let text = table.text(key, problems)?;
    match check_path(text) {
        Ok(()) => Some(text),
        Err(bad) => {
            bad_pattern(text, bad, &table.value_span(key), problems);
            None
        }
    }
}

fn read_allow_from(table: &Table<'_>, problems: &mut Problems) -> Option<Vec<ipnet::IpNet>> {
    let value = table.value("allow_from")?;
    if table.elements("allow_from").is_empty() {
        let help = "list networks: `[\"10.0.0.0/8\"]`; `respond = { status = 403 }` refuses all";
        problems.error(
            &Some(value.span()),
            "E_VALUE",
            "`allow_from` is empty",
            help,
        );
    }
    Some(networks("allow_from", value, problems))
}

/// Reads a rate such as `100/s`.
fn read_rate(table: &Table<'_>, problems: &mut Problems) -> Option<RateLimit> {
    let text = table.text("rate", problems)?;
    let rate = text.split_once('/').and_then(|(requests, unit)| {
        let period_ms = match unit {
            "s" => 1_000,
            "min" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let requests = requests.parse().ok()?;
        let is_valid = (1..=1_000_000).contains(&requests);
        is_valid.then_some(RateLimit {
            requests,
            period_ms,
        })
    });
    if rate.is_none() {
        let message = format!("`{text}` is not a rate");
        let help = "1 to 1000000 requests of one client per `s`, `min` or `h`: `rate = \"100/s\"`";
        problems.error(&table.value_span("rate"), "E_VALUE", message, help);
    }
    rate
}

/// Reports keys for servers on a route whose requests reach none.
fn check_forwarding(table: &Table<'_>, target: &RouteTarget, problems: &mut Problems) {
    let key = match target {
        RouteTarget::Own | RouteTarget::Service(_) | RouteTarget::Split(_) => return,
        RouteTarget::Redirect(_) => "redirect",
        RouteTarget::Respond(_) => "respond",
    };
    let keeps_path = matches!(target, RouteTarget::Redirect(redirect) if redirect.keeps_path);
    for idle in FORWARD_KEYS {
        if table.value(idle).is_some() && !(keeps_path && PATH_KEYS.contains(&idle)) {
            let message = format!("`{idle}` has no effect: `{key}` answers without a server");
            let help = format!("remove it, or set `to` instead of `{key}`");
            problems.warning(&table.key_span(idle), "W_NO_EFFECT", message, help);
        }
    }
}
