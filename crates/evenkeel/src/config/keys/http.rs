//! Lists the keys that only HTTP services have.

use super::{DAY_MS, HOUR_MS, Section, TEN_MINUTES_MS, WEEK_MS, flag, number, table, text, word};

/// `[service.pool]` of an HTTP service
pub static HTTP_POOL: Section = Section {
    title: "[service.pool] (http)",
    keys: &[
        number("size", 0, 1_000_000),
        number("min_idle", 0, 100_000),
        number("idle_ms", 0, WEEK_MS),
        number("lifetime_ms", 0, WEEK_MS),
        number("wait_ms", 1, TEN_MINUTES_MS),
        number("queue_length", 0, 1_000_000),
    ],
};

/// `[service.tls]` of an HTTP service
pub static HTTP_TLS: Section = Section {
    title: "[service.tls] (http)",
    keys: &[
        text("certificate"),
        text("key"),
        text("certificates"),
        text("client_ca"),
    ],
};

/// Entry of `certificates`
pub static CERTIFICATE: Section = Section {
    title: "an entry of `certificates`",
    keys: &[
        text("certificate"),
        text("key"),
        text("directory"),
        text("client_ca"),
    ],
};

/// `[service.http]`
pub static HTTP: Section = Section {
    title: "[service.http]",
    keys: &[
        number("head_bytes_max", 1_024, 1_048_576),
        number("fields_max", 8, 1_000),
        number("body_bytes_max", 0, 1 << 50),
        word("https", &["off", "redirect", "only"]),
        number("hsts_days", 0, 3_650),
        text("forwarded_from"),
        text("hash"),
        table("error_pages"),
        word("request_id", &["off", "on"]),
        word("access_log", &["off", "json", "combined"]),
        word("access_log_query", &["keep", "mask"]),
    ],
};

/// `[service.times]`
pub static TIMES: Section = Section {
    title: "[service.times]",
    keys: &[
        number("header_ms", 0, HOUR_MS),
        number("first_byte_ms", 0, DAY_MS),
        number("request_ms", 0, DAY_MS),
        number("keepalive_ms", 0, DAY_MS),
        number("body_idle_ms", 0, DAY_MS),
        number("body_rate_bytes_min", 0, 1 << 20),
        number("tunnel_idle_ms", 0, WEEK_MS),
    ],
};

/// `[[service.route]]`
pub static ROUTE: Section = Section {
    title: "[[service.route]]",
    keys: &[
        text("name"),
        text("host"),
        text("path"),
        text("methods"),
        table("headers"),
        text("to"),
        text("redirect"),
        number("redirect_status", 301, 308),
        flag("keep_path"),
        table("respond"),
        text("strip_prefix"),
        text("replace_prefix"),
        table("set_request"),
        table("set_response"),
        text("remove_request"),
        text("allow_from"),
        table("basic_auth"),
        text("rate"),
        number("body_bytes_max", 0, 1 << 50),
        number("request_ms", 0, DAY_MS),
    ],
};

/// `[service.route.respond]`
pub static RESPOND: Section = Section {
    title: "[service.route.respond]",
    keys: &[number("status", 200, 599), text("file")],
};

/// `[service.route.basic_auth]`
pub static BASIC_AUTH: Section = Section {
    title: "[service.route.basic_auth]",
    keys: &[table("users"), text("users_file"), text("realm")],
};

/// `[service.sticky]`
pub static STICKY: Section = Section {
    title: "[service.sticky]",
    keys: &[
        text("cookie"),
        number("ttl_ms", 0, 400 * DAY_MS),
        word("same_site", &["strict", "lax", "none"]),
    ],
};

/// `[service.retry]`
pub static RETRY: Section = Section {
    title: "[service.retry]",
    keys: &[
        text("on"),
        number("budget_percent", 0, 100),
        number("body_hold_bytes", 0, 16 << 20),
    ],
};
