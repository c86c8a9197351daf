//! Lists all keys of the file, for the reader, the suggestions and the documentation.

mod database;
mod http;

pub use self::database::{FAILOVER, POOL, POOL_DATABASE, POOL_USER, RULE, SPLIT};
pub use self::http::{
    BASIC_AUTH, CERTIFICATE, HTTP, HTTP_POOL, HTTP_TLS, RESPOND, RETRY, ROUTE, STICKY, TIMES,
};

use super::plan::{Health, PROTOCOL_NAMES, Probe};

/// Table of the file.
#[derive(Debug)]
pub struct Section {
    /// Title as written in the file: `[service.health]`, `[[service]]`.
    pub title: &'static str,
    /// Keys, in the order of the documentation.
    pub keys: &'static [Key],
}

/// Key of a table.
#[derive(Debug)]
pub struct Key {
    /// Name, which ends with the unit.
    pub name: &'static str,
    /// Permitted values.
    pub kind: Kind,
}

/// Permitted values of a key.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Integer within these bounds, inclusive.
    Number(u64, u64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// String, or another type that the key's reader accepts.
    Text,
    /// Table.
    Table,
}

const fn number(name: &'static str, min: u64, max: u64) -> Key {
    Key {
        name,
        kind: Kind::Number(min, max),
    }
}

const fn flag(name: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Flag,
    }
}

const fn word(name: &'static str, words: &'static [&'static str]) -> Key {
    Key {
        name,
        kind: Kind::Word(words),
    }
}

const fn text(name: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Text,
    }
}

const fn table(name: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Table,
    }
}

/// Maximum of most waits: a longer one is more likely a mistake in the unit.
const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;
const TEN_MINUTES_MS: u64 = 600_000;
/// Maximum of session times: sessions of database pools may be idle for days.
const WEEK_MS: u64 = 7 * DAY_MS;
/// Highest instance number: ten bits of a cancel key contain the instance that issued it. 0 means
/// none.
pub(super) const INSTANCE_MAX: u64 = 1_023;

/// The file itself.
pub static ROOT: Section = Section {
    title: "the top level",
    keys: &[
        table("engine"),
        table("admin"),
        table("log"),
        table("peers"),
        table("cluster"),
        table("service"),
    ],
};

/// `[engine]`
pub static ENGINE: Section = Section {
    title: "[engine]",
    keys: &[
        word("io", &["auto", "io_uring", "epoll"]),
        number("workers", 1, 1_024),
        number("shutdown_limit_ms", 0, DAY_MS),
    ],
};

/// `[admin]`
pub static ADMIN: Section = Section {
    title: "[admin]",
    keys: &[
        text("listen"),
        text("postgres"),
        text("mysql"),
        text("socket"),
        text("token"),
        text("token_file"),
        text("allowed_hosts"),
    ],
};

/// `[log]`
pub static LOG: Section = Section {
    title: "[log]",
    keys: &[
        word("format", &["text", "json"]),
        word("level", &["error", "warn", "info", "debug", "trace"]),
        flag("connections"),
    ],
};

/// `[peers]`
pub static PEERS: Section = Section {
    title: "[peers]",
    keys: &[number("instance", 1, INSTANCE_MAX), text("addresses")],
};

/// `[[cluster]]`
pub static CLUSTER: Section = Section {
    title: "[[cluster]]",
    keys: &[
        text("name"),
        PROTOCOL,
        text("servers"),
        SEND_PROXY,
        table("health"),
        table("monitor"),
        table("server_tls"),
    ],
};

const PROTOCOL: Key = word("protocol", PROTOCOL_NAMES);
const SEND_PROXY: Key = word("send_proxy", &["off", "v1", "v2"]);

/// `[[service]]`
pub static SERVICE: Section = Section {
    title: "[[service]]",
    keys: &[
        text("name"),
        PROTOCOL,
        text("listen"),
        text("cluster"),
        text("servers"),
        text("balance"),
        word("role", &["any", "primary", "replica"]),
        word("on_primary_change", &["cut", "leave"]),
        number("lag_ms_max", 0, DAY_MS),
        // tidy: a value of the configuration
        word("fallback", &["nobody", "primary"]),
        number("max_connections", 1, 1_000_000),
        number("connect_timeout_ms", 1, TEN_MINUTES_MS),
        number("retries", 0, 100),
        number("idle_timeout_ms", 0, WEEK_MS),
        number("half_close_timeout_ms", 0, WEEK_MS),
        number("hello_timeout_ms", 1, TEN_MINUTES_MS),
        number("query_timeout_ms", 0, WEEK_MS),
        number("transaction_timeout_ms", 0, WEEK_MS),
        number("idle_in_transaction_timeout_ms", 0, WEEK_MS),
        number("login_timeout_ms", 1, TEN_MINUTES_MS),
        number("logins_at_once", 1, 1_000_000),
        number("logins_per_address", 1, 1_000_000),
        number("digests_max", 0, 100_000),
        number("slow_start_ms", 0, HOUR_MS),
        number("drain_limit_ms", 0, DAY_MS),
        word("on_server_down", &["leave", "cut"]),
        word("all_down", &["refuse", "wait"]),
        text("accept_proxy_from"),
        SEND_PROXY,
        table("queue"),
        table("keepalive"),
        table("health"),
        table("monitor"),
        table("server_tls"),
        table("tls"),
        table("auth"),
        table("pool"),
        table("split"),
        table("rule"),
        table("failover"),
        table("http"),
        table("times"),
        table("route"),
        table("sticky"),
        table("retry"),
    ],
};

/// Entry of `servers` that is a table.
pub static SERVER: Section = Section {
    title: "an entry of `servers`",
    keys: &[
        text("address"),
        text("name"),
        number("weight", 0, 256),
        flag("backup"),
        number("max_connections", 1, 1_000_000),
    ],
};

/// `[service.queue]`
pub static QUEUE: Section = Section {
    title: "[service.queue]",
    keys: &[
        number("length", 0, 1_000_000),
        number("wait_ms", 1, TEN_MINUTES_MS),
    ],
};

/// `[service.keepalive]`
pub static KEEPALIVE: Section = Section {
    title: "[service.keepalive]",
    keys: &[
        // The kernel accepts 1 to 32767 seconds and 1 to 127 probes.
        number("idle_ms", 0, 32_767_000),
        number("interval_ms", 1_000, 32_767_000),
        number("probes", 1, 127),
        number("user_timeout_ms", 0, DAY_MS),
    ],
};

/// `[service.health]`
pub static HEALTH: Section = Section {
    title: "[service.health]",
    keys: &HEALTH_KEYS,
};

/// `[cluster.health]`
pub static CLUSTER_HEALTH: Section = Section {
    title: "[cluster.health]",
    keys: &HEALTH_KEYS,
};

/// Words of `probe`.
const PROBES: [&str; Probe::NAMES.len() + 1] = {
    let mut words = [Health::NO_PROBE; Probe::NAMES.len() + 1];
    let (_, names) = words.split_at_mut(1);
    names.copy_from_slice(Probe::NAMES);
    words
};

const HEALTH_KEYS: [Key; 13] = [
    word("probe", &PROBES),
    number("port", 1, 65_535),
    word("tls", &["auto", "on", "off"]),
    number("interval_ms", 50, HOUR_MS),
    number("timeout_ms", 1, TEN_MINUTES_MS),
    number("rise", 1, 100),
    number("fall", 1, 100),
    number("dead_interval_ms_max", 50, HOUR_MS),
    text("path"),
    text("host"),
    text("status"),
    text("body"),
    text("query"),
];

/// `[service.monitor]`
pub static MONITOR: Section = Section {
    title: "[service.monitor]",
    keys: &MONITOR_KEYS,
};

/// `[cluster.monitor]`
pub static CLUSTER_MONITOR: Section = Section {
    title: "[cluster.monitor]",
    keys: &MONITOR_KEYS,
};

const MONITOR_KEYS: [Key; 6] = [
    text("user"),
    text("password"),
    text("password_file"),
    text("database"),
    number("role_interval_ms", 20, TEN_MINUTES_MS),
    text("lag_query"),
];

/// `[service.server_tls]`
pub static SERVER_TLS: Section = Section {
    title: "[service.server_tls]",
    keys: &SERVER_TLS_KEYS,
};

/// `[cluster.server_tls]`
pub static CLUSTER_SERVER_TLS: Section = Section {
    title: "[cluster.server_tls]",
    keys: &SERVER_TLS_KEYS,
};

const SERVER_TLS_KEYS: [Key; 5] = [
    word("mode", &["off", "encrypt", "verify"]),
    text("ca"),
    text("fingerprints"),
    text("certificate"),
    text("key"),
];

/// `[service.tls]`
pub static TLS: Section = Section {
    title: "[service.tls]",
    keys: &[
        text("certificate"),
        text("key"),
        text("client_ca"),
        flag("required"),
    ],
};

/// `[service.auth]`
pub static AUTH: Section = Section {
    title: "[service.auth]",
    keys: &[
        word("source", &["server", "login", "file"]),
        text("user"),
        text("password"),
        text("password_file"),
        text("database"),
        text("query"),
        text("users_file"),
        text("allow_from"),
    ],
};

/// File that `users_file` names; not a part of the config file.
pub static USERS: Section = Section {
    title: "the users file",
    keys: &[table("users")],
};

/// User of that file.
pub static USER: Section = Section {
    title: "[users.NAME]",
    keys: &[
        text("password"),
        text("verifier"),
        text("md5"),
        flag("certificate"),
        flag("cleartext"),
        text("server_user"),
        text("server_password"),
    ],
};

/// All tables of the config file, in the order of the documentation.
pub static SECTIONS: [&Section; 34] = [
    &ROOT,
    &ENGINE,
    &ADMIN,
    &LOG,
    &PEERS,
    &CLUSTER,
    &SERVICE,
    &SERVER,
    &QUEUE,
    &KEEPALIVE,
    &HEALTH,
    &CLUSTER_HEALTH,
    &MONITOR,
    &CLUSTER_MONITOR,
    &SERVER_TLS,
    &CLUSTER_SERVER_TLS,
    &TLS,
    &AUTH,
    &POOL,
    &POOL_USER,
    &POOL_DATABASE,
    &SPLIT,
    &RULE,
    &FAILOVER,
    &HTTP_POOL,
    &HTTP_TLS,
    &CERTIFICATE,
    &HTTP,
    &TIMES,
    &ROUTE,
    &RESPOND,
    &BASIC_AUTH,
    &STICKY,
    &RETRY,
];

impl Section {
    /// Returns the key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// Returns the most similar of the words, if it is similar enough.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    words
        .into_iter()
        .map(|candidate| (closeness(&word, candidate), candidate))
        .filter(|(closeness, _)| *closeness >= 0.82)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the similarity of two words, 1 if they are equal. The edit distance detects typing
/// errors, Jaro-Winkler detects shortened words (`leastconn`), and a part of a word (`uring`)
/// matches the whole word.
fn closeness(word: &str, candidate: &str) -> f64 {
    let edits = strsim::damerau_levenshtein(word, candidate);
    let typing_error = edits <= 1 + candidate.len() / 8;
    let jaro = strsim::jaro_winkler(word, candidate);
    let part = word.len() > 3 && candidate.contains(word);
    if part || (typing_error && candidate.len() >= 3) {
        jaro.max(0.9)
    } else {
        jaro
    }
}
