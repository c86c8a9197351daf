//! Reads the settings of services with `protocol = "http"`.

use evenkeel_policy::Algorithm;

use crate::nearest::nearest;
use crate::networks::networks;
use crate::plan::{
    AccessLog, AccessLogPlan, HashKeyPlan, Http2, HttpClientsPlan, HttpLimitsPlan, HttpPlan,
    HttpPoolPlan, HttpTimesPlan, Https, RetryPlan, ServerHttp2, StickyPlan,
};
use crate::problem::Problems;
use crate::reader::{Table, listed, wrong_type};
use crate::route::{self, RouteSpans, is_token};
use crate::setting::{Setting, Settings};
use crate::sources::Sources;
use crate::{compress, error_pages, keys, tls};

/// Properties of the service that its HTTP settings depend on.
pub(crate) struct Context<'a> {
    pub(crate) balance: Algorithm,
    pub(crate) retries: u32,
    pub(crate) sources: &'a Sources,
}

/// Reads these settings from the tables of the service, and the places of its routes.
pub(crate) fn read(
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
        http.times = HttpTimesPlan::of(&times, problems);
    }
    if let Some(limits) = table.table("http", &keys::HTTP, problems) {
        http.limits = HttpLimitsPlan::of(&limits, problems);
        http.clients = read_clients(&limits, problems);
        http.clients.error_pages = error_pages::read(&limits, sources, problems);
        check_clients(&limits, table, context, problems);
        http.access_log = read_access_log(&limits, problems);
        http.compress = compress::read(&limits, problems);
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
    let pool = HttpPoolPlan::of(table, problems);
    if pool.size > 0 && pool.min_idle > pool.size {
        let message = format!("`min_idle` is more than `size`, which is {}", pool.size);
        let help = format!("use {} or less, or a larger `size`", pool.size);
        problems.error(&table.value_span("min_idle"), "E_ORDER", message, help);
    }
    pool
}

fn read_clients(table: &Table<'_>, problems: &mut Problems) -> HttpClientsPlan {
    let networks = table
        .value("forwarded_from")
        .map(|value| networks("forwarded_from", value, problems));
    HttpClientsPlan {
        https: Https::read(table, "https", problems).unwrap_or_default(),
        http2: Http2::read(table, "http2", problems).unwrap_or_default(),
        server_http2: ServerHttp2::read(table, "server_http2", problems).unwrap_or_default(),
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
    let sticky = StickyPlan::of(table, problems);
    if !is_token(&sticky.cookie) {
        let message = format!("`{}` is not the name of a cookie", sticky.cookie);
        let help = "letters, digits, `-` and `_`";
        problems.error(&table.value_span("cookie"), "E_NAME", message, help);
    }
    sticky
}

fn read_retry(table: &Table<'_>, problems: &mut Problems) -> RetryPlan {
    let mut retry = RetryPlan::of(table, problems);
    if table.value("on").is_some() {
        let words = read_words(table, "on", keys::RETRY_WORDS, problems);
        let replay = &mut retry.replay;
        replay.unsent = words.contains(&"unsent");
        replay.idempotent = words.contains(&"idempotent");
        replay.put = words.contains(&"put");
        replay.delete = words.contains(&"delete");
    }
    retry
}

/// Reads words that are one of these; none is an empty array.
pub(crate) fn read_words<'a>(
    table: &Table<'a>,
    key: &str,
    known: &[&str],
    problems: &mut Problems,
) -> Vec<&'a str> {
    let help = format!("an array of {}", listed(known));
    let mut words = Vec::new();
    for value in table.elements(key) {
        let Some(word) = value.get_ref().as_str() else {
            wrong_type(key, "words", value, help.as_str(), problems);
            continue;
        };
        if known.contains(&word) {
            words.push(word);
            continue;
        }
        let message = format!("`{word}` is not a value of `{key}`");
        let help = match nearest(word, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => help.clone(),
        };
        problems.error(&Some(value.span()), "E_UNKNOWN_WORD", message, help);
    }
    words
}

fn read_access_log(table: &Table<'_>, problems: &mut Problems) -> AccessLogPlan {
    AccessLogPlan {
        format: AccessLog::read(table, "access_log", problems).unwrap_or_default(),
        masks_query: table.word("access_log_query", problems) == Some("mask"),
    }
}
