//! Lists the keys that only HTTP services have.

use super::{DAY_MS, HOUR_MS, Section, TEN_MINUTES_MS, WEEK_MS, number, text};

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
    keys: &[text("certificate"), text("key"), text("directory")],
};

/// `[service.http]`
pub static HTTP: Section = Section {
    title: "[service.http]",
    keys: &[
        number("head_bytes_max", 1_024, 1_048_576),
        number("fields_max", 8, 1_000),
        number("body_bytes_max", 0, 1 << 50),
    ],
};

/// `[service.times]`
pub static TIMES: Section = Section {
    title: "[service.times]",
    keys: &[
        number("header_ms", 0, HOUR_MS),
        number("first_byte_ms", 0, DAY_MS),
        number("keepalive_ms", 0, DAY_MS),
        number("body_idle_ms", 0, DAY_MS),
        number("tunnel_idle_ms", 0, WEEK_MS),
    ],
};
