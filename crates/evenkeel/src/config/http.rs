//! Reads the settings of services with `protocol = "http"`.

use evenkeel_policy::Algorithm;

use super::plan::{
    AccessLog, AccessLogPlan, HashKeyPlan, HttpClientsPlan, HttpLimitsPlan, HttpPlan, HttpPoolPlan,
    HttpTimesPlan, Https, RetryPlan, SameSite, StickyPlan,
};
use super::problem::Problems;
use super::reader::{Table, listed, wrong_type};
use super::route::{self, RouteSpans, is_token};
use super::service::networks;
use super::sources::Sources;
use super::{error_pages, keys, tls};

/// Words of `on`.
const RETRY_WORDS: [&str; 4] = ["unsent", "idempotent", "put", "delete"];

/// Properties of the service that its HTTP settings depend on.
pub(super) struct Context<'a> {
    pub(super) balance: Algorithm,
    pub(super) retries: u32,
    pub(super) sources: &'a Sources,
}

/// Reads these settings from the tables of the service, and the places of its routes.
pub(super) fn read(
    table: &Table<'_>,
    context: &Context<'_>,
    problems: &mut Problems,
) -> (HttpPlan, Vec<RouteSpans>) {
    let sources = context.sources;
    let mut http = HttpPlan::default();
    if let Some(pool) = table.table("pool", &keys::HTTP_POOL, problems) {
        http.pool = read_pool(&pool, problems);
    }
    if let Some(times) = table.table("times", &keys::TIMES, problems) {
        http.times = read_times(&times, problems);
    }
    if let Some(limits) = table.table("http", &keys::HTTP, problems) {
        http.limits = read_limits(&limits, problems);
        http.clients = read_clients(&limits, problems);
        http.clients.error_pages = error_pages::read(&limits, sources, problems);
        check_clients(&limits, table, context, problems);
        http.access_log = read_access_log(&limits, problems);
    }
    let tls = table.table("tls", &keys::HTTP_TLS, problems);
    http.tls = tls.and_then(|tls| tls::read_http(&tls, sources, problems));
    if let Some(sticky) = table.table("sticky", &keys::STICKY, problems) {
        http.sticky = Some(read_sticky(&sticky, problems));
    }
    if let Some(retry) = table.table("retry", &keys::RETRY, problems) {
        http.retry = read_retry(&retry, problems);
    }
    http.retry.replay.retries = context.retries;
    let (routes, spans) = route::read(table, sources, problems);
    http.routes = routes;
    (http, spans)
}

fn read_pool(table: &Table<'_>, problems: &mut Problems) -> HttpPoolPlan {
    let mut pool = HttpPoolPlan::default();
    let mut small = |key, field: &mut u32| {
        *field = table.small_number(key, problems).unwrap_or(*field);
    };
    small("size", &mut pool.size);
    small("min_idle", &mut pool.min_idle);
    small("queue_length", &mut pool.queue_length);
    let mut number = |key, field: &mut u64| {
        *field = table.number(key, problems).unwrap_or(*field);
    };
    number("idle_ms", &mut pool.idle_ms);
    number("lifetime_ms", &mut pool.lifetime_ms);
    number("wait_ms", &mut pool.wait_ms);
    if pool.size > 0 && pool.min_idle > pool.size {
        let message = format!("`min_idle` is more than `size`, which is {}", pool.size);
        let help = format!("use {} or less, or a larger `size`", pool.size);
        problems.error(&table.value_span("min_idle"), "E_ORDER", message, help);
    }
    pool
}

fn read_times(table: &Table<'_>, problems: &mut Problems) -> HttpTimesPlan {
    let mut times = HttpTimesPlan::default();
    let mut number = |key, field: &mut u64| {
        *field = table.number(key, problems).unwrap_or(*field);
    };
    number("header_ms", &mut times.header_ms);
    number("first_byte_ms", &mut times.first_byte_ms);
    number("request_ms", &mut times.request_ms);
    number("keepalive_ms", &mut times.keepalive_ms);
    number("body_idle_ms", &mut times.body_idle_ms);
    number("tunnel_idle_ms", &mut times.tunnel_idle_ms);
    if let Some(rate) = table.small_number("body_rate_bytes_min", problems) {
        times.body_rate_bytes_min = rate;
    }
    times
}

fn read_limits(table: &Table<'_>, problems: &mut Problems) -> HttpLimitsPlan {
    let mut limits = HttpLimitsPlan::default();
    let mut small = |key, field: &mut u32| {
        *field = table.small_number(key, problems).unwrap_or(*field);
    };
    small("head_bytes_max", &mut limits.head_bytes_max);
    small("fields_max", &mut limits.fields_max);
    if let Some(bytes) = table.number("body_bytes_max", problems) {
        limits.body_bytes_max = bytes;
    }
    limits
}

fn read_clients(table: &Table<'_>, problems: &mut Problems) -> HttpClientsPlan {
    let https = match table.word("https", problems) {
        Some("redirect") => Https::Redirect,
        Some("only") => Https::Only,
        _ => Https::Off,
    };
    let networks = table
        .value("forwarded_from")
        .map(|value| networks("forwarded_from", value, problems));
    HttpClientsPlan {
        https,
        hsts_days: table.small_number("hsts_days", problems).unwrap_or(0),
        forwarded_from: networks.unwrap_or_default(),
        hash: read_hash(table, problems),
        error_pages: Vec::new(),
        makes_request_ids: table.word("request_id", problems) == Some("on"),
    }
}

/// Reads `header:NAME`, `cookie:NAME`, `path` or `address`.
fn read_hash(table: &Table<'_>, problems: &mut Problems) -> HashKeyPlan {
    let Some(text) = table.text("hash", problems) else {
        return HashKeyPlan::Address;
    };
    let (kind, name) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "address" if text == kind => HashKeyPlan::Address,
        "path" if text == kind => HashKeyPlan::Path,
        "header" if is_token(name) => HashKeyPlan::Header(name.to_ascii_lowercase()),
        "cookie" if is_token(name) => HashKeyPlan::Cookie(name.to_owned()),
        _ => {
            let message = format!("`{text}` is not a value of `hash`");
            let help = "one of `address`, `path`, `header:NAME` and `cookie:NAME`";
            problems.error(&table.value_span("hash"), "E_VALUE", message, help);
            HashKeyPlan::Address
        }
    }
}

/// Checks the keys of `[service.http]` against other tables of the service.
fn check_clients(
    table: &Table<'_>,
    service: &Table<'_>,
    context: &Context<'_>,
    problems: &mut Problems,
) {
    if table.value("hash").is_some() && context.balance != Algorithm::Source {
        let message = format!(
            "`hash` has no effect: `balance = \"{}\"` chooses servers by their load or in turn",
            context.balance
        );
        let help = "set `balance = \"source\"`, or remove it";
        problems.warning(&table.key_span("hash"), "W_NO_EFFECT", message, help);
    }
    if service.value("tls").is_some() {
        return;
    }
    let help = "add [service.tls], or remove it";
    for (key, is_on) in [
        (
            "https",
            matches!(
                table
                    .value("https")
                    .and_then(|value| value.get_ref().as_str()),
                Some("redirect" | "only")
            ),
        ),
        ("hsts_days", table.value("hsts_days").is_some()),
    ] {
        if is_on {
            let message = format!("`{key}` requires TLS towards clients");
            problems.error(&table.key_span(key), "E_MISSING_KEY", message, help);
        }
    }
}

fn read_sticky(table: &Table<'_>, problems: &mut Problems) -> StickyPlan {
    let default = StickyPlan::default();
    let cookie = table.text("cookie", problems).unwrap_or(&default.cookie);
    if !is_token(cookie) {
        let message = format!("`{cookie}` is not the name of a cookie");
        let help = "letters, digits, `-` and `_`";
        problems.error(&table.value_span("cookie"), "E_NAME", message, help);
    }
    StickyPlan {
        cookie: cookie.to_owned(),
        ttl_ms: table.number("ttl_ms", problems).unwrap_or(default.ttl_ms),
        same_site: match table.word("same_site", problems) {
            Some("strict") => SameSite::Strict,
            Some("none") => SameSite::None,
            _ => default.same_site,
        },
    }
}

fn read_retry(table: &Table<'_>, problems: &mut Problems) -> RetryPlan {
    let default = RetryPlan::default();
    let mut retry = RetryPlan {
        budget_percent: table
            .small_number("budget_percent", problems)
            .unwrap_or(default.budget_percent),
        body_hold_bytes: table
            .small_number("body_hold_bytes", problems)
            .unwrap_or(default.body_hold_bytes),
        ..default
    };
    if table.value("on").is_some() {
        let words = read_on(table, problems);
        let replay = &mut retry.replay;
        replay.unsent = words.contains(&"unsent");
        replay.idempotent = words.contains(&"idempotent");
        replay.put = words.contains(&"put");
        replay.delete = words.contains(&"delete");
    }
    retry
}

/// Reads the kinds of requests that are sent again; none is an empty array.
fn read_on<'a>(table: &Table<'a>, problems: &mut Problems) -> Vec<&'a str> {
    let help = format!("an array of {}", listed(&RETRY_WORDS));
    let mut words = Vec::new();
    for value in table.elements("on") {
        let Some(word) = value.get_ref().as_str() else {
            wrong_type("on", "words", value, help.as_str(), problems);
            continue;
        };
        if RETRY_WORDS.contains(&word) {
            words.push(word);
            continue;
        }
        let message = format!("`{word}` is not a value of `on`");
        let help = match keys::nearest(word, RETRY_WORDS) {
            Some(near) => format!("did you mean `{near}`?"),
            None => help.clone(),
        };
        problems.error(&Some(value.span()), "E_UNKNOWN_WORD", message, help);
    }
    words
}

fn read_access_log(table: &Table<'_>, problems: &mut Problems) -> AccessLogPlan {
    let format = match table.word("access_log", problems) {
        Some("json") => AccessLog::Json,
        Some("combined") => AccessLog::Combined,
        _ => AccessLog::Off,
    };
    AccessLogPlan {
        format,
        masks_query: table.word("access_log_query", problems) == Some("mask"),
    }
}
