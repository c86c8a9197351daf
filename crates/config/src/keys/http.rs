//! Lists the tables that only HTTP services have.

use super::{Kind, PATH, Section, TEXT, section};
use crate::plan::{
    AccessLog, CompressPlan, Http2, HttpLimitsPlan, HttpPoolPlan, HttpTimesPlan, Https, MirrorPlan,
    RetryPlan, RouteLimitsPlan, ServerHttp2, SplitPart, StickyPlan,
};
use crate::setting::{Setting, keys};

/// `[service.pool]` of an HTTP service
pub(crate) static HTTP_POOL: Section = section("[service.pool] (http)", &[HttpPoolPlan::KEYS]);

/// `[service.tls]` of an HTTP service
pub(crate) static HTTP_TLS: Section = section(
    "[service.tls] (http)",
    &[keys! {
        /// PEM file with the certificate and its intermediates. Required without `acme`.
        "certificate", PATH;
        /// PEM file with the private key.
        "key", PATH;
        /// Names whose certificates are ordered and renewed as [`[acme]`](acme.md) says, one for
        /// each.
        "acme" = [], Kind::Texts("names");
        /// Further certificates.
        "certificates", Kind::Entries("an array of tables", &CERTIFICATE);
        /// PEM file with the authorities of client certificates. Clients must then have one; for a
        /// connection without TLS, requests are answered with 403.
        "client_ca", PATH;
    }],
);

/// Entry of `certificates`
pub(crate) static CERTIFICATE: Section = section(
    "an entry of `certificates`",
    &[keys! {
        /// PEM file with a certificate.
        "certificate", PATH;
        /// PEM file with its private key.
        "key", PATH;
        /// Directory with files `NAME.crt` and `NAME.key`, instead of `certificate` and `key`.
        "directory", PATH;
        /// As in `[service.tls]`, for the names of these certificates only, and instead of it.
        "client_ca", PATH;
    }],
);

/// `[service.http]`
pub(crate) static HTTP: Section = section(
    "[service.http]",
    &[
        HttpLimitsPlan::KEYS,
        keys! {
            /// Requests without TLS: served, redirected to the same URL with TLS, or refused.
            /// Requires `[service.tls]`.
            "https" = "off", Https::KIND;
            /// Clients that may use HTTP/2: `tls`: those with TLS that offer it; `all`: also those
            /// without TLS that begin with it; `off`: none.
            "http2" = "tls", Http2::KIND;
            /// Servers that get HTTP/2, which gRPC needs: `tls`: those with TLS that agree to it;
            /// `all`: also all those without TLS; `off`: none. Others get HTTP/1.1.
            "server_http2" = "off", ServerHttp2::KIND;
            /// Days for which browsers use TLS only (`Strict-Transport-Security`); requires
            /// `[service.tls]`. Browsers remember it: begin with 1. Not announced when absent.
            "hsts_days", Kind::Number(0, 3_650);
            /// Proxies whose `X-Forwarded-For` and `Forwarded` are read; the client is the last
            /// address that is not one of them. From others, these fields are removed.
            "forwarded_from" = [], Kind::Texts("addresses or networks");
            /// Value by which a server is chosen with `balance = "source"`; the client's address if
            /// the request lacks it.
            "hash" = "address", Kind::Text("`address`, `path`, `header:NAME` or `cookie:NAME`");
            /// Files that clients get in the place of Evenkeel's texts, by status:
            /// `{ "503" = "down.html", "5xx" = "error.html" }`. Limits as `file` of a route. Errors
            /// of servers pass unchanged.
            "error_pages", Kind::Names("a table");
            /// `on` gives each request an `X-Request-ID` of 32 hexadecimal digits, which is unique
            /// and cannot be guessed from others, but is no secret, for servers and the access log;
            /// that of a proxy in `forwarded_from` passes. `off`: what the client sends passes.
            "request_id" = "off", Kind::Word(&["off", "on"]);
            /// Writes a line to stdout for each request: [access log](operating.md#access-log).
            "access_log" = "off", AccessLog::KIND;
            /// `mask` writes `?***` in place of query strings, also in `Referer`.
            "access_log_query" = "keep", Kind::Word(&["keep", "mask"]);
            /// Codings with which responses are compressed, the preferred one first, for clients
            /// that accept one: [compression](differences-http.md#compression).
            "compress" = [], Kind::Words(COMPRESS_WORDS);
            /// Media types of these responses, in place of the usual ones: texts, JSON, XML,
            /// JavaScript, WebAssembly, and fonts and images without compression of their own.
            "compress_types", Kind::Texts("such as `[\"text/*\", \"*+json\", \"font/ttf\"]`");
        },
        CompressPlan::KEYS,
    ],
);

/// `[service.times]`
pub(crate) static TIMES: Section = section("[service.times]", &[HttpTimesPlan::KEYS]);

/// `[[service.route]]`
pub(crate) static ROUTE: Section = section(
    "[[service.route]]",
    &[
        keys! {
            /// Name in metrics, the access log and the status page; without it the first host and
            /// the path. Routes of one name are counted together.
            "name", Kind::Text("1 to 100 bytes");
            /// `shop.example`, or `*.shop.example` for all names below it; without port.
            "host", Kind::Texts("a name or an array of them");
            /// `/api` takes `/api` and all paths below it, `/api/` only those below it, `=/api`
            /// only this one.
            "path", PATH;
            /// Such as `["GET", "HEAD"]`.
            "methods", Kind::Texts("an array");
            /// Header fields: `{ X-Version = "2" }`, or `{ X-Beta = true }` for any value.
            "headers", Kind::Names("a table");
            /// HTTP service whose servers are used; without target, those of the own service. An
            /// array splits the requests: [split](differences-http.md#split).
            "to", Kind::Entries("a name or an array of tables", &SPLIT_PART);
            /// HTTP service that gets copies of requests without a body:
            /// [mirror](differences-http.md#mirror).
            "mirror", Kind::Entry("a name or a table", &MIRROR);
            /// Answers with a redirect to this location.
            "redirect", Kind::Text("a URL or a path");
            /// Status of the redirect: 301, 302, 307 or 308. Clients remember 301 and 308; they
            /// repeat the request with its method and body after 307 and 308.
            "redirect_status" = 307, Kind::Number(301, 308);
            /// true: the path and the query of the request follow `redirect`; `strip_prefix` and
            /// `replace_prefix` change the path before.
            "keep_path" = false, Kind::Flag;
            /// Answers with a fixed status and content.
            "respond", Kind::Table(&RESPOND);
            /// Removes this prefix from the path that the server receives.
            "strip_prefix", PATH;
            /// Replaces `path` in the path that the server receives.
            "replace_prefix", PATH;
            /// Fields of the request that the server receives: `{ X-Name = "value" }`.
            "set_request", Kind::Names("a table");
            /// Fields of the response that the client receives.
            "set_response", Kind::Names("a table");
            /// Fields that the server does not receive.
            "remove_request", Kind::Texts("a name or an array of them");
            /// Addresses or networks of permitted clients; others are answered with 403.
            "allow_from", Kind::Texts("an array");
            /// Users that may use the route; others are asked for a password with 401.
            "basic_auth", Kind::Table(&BASIC_AUTH);
            /// Requests of one client per `s`, `min` or `h`, beyond which it is answered with 429.
            /// A client is an IPv4 address or an IPv6 network of 64 bits; one that was idle may
            /// send all of them within a moment.
            "rate", Kind::Text("such as `\"100/s\"`");
        },
        RouteLimitsPlan::KEYS,
    ],
);

/// `[service.route.mirror]`
pub(crate) static MIRROR: Section = section(
    "[service.route.mirror]",
    &[
        keys! {
            /// HTTP service whose servers get the copies.
            "service" = required, Kind::Text("name of a service");
        },
        MirrorPlan::KEYS,
        keys! {
            /// Fields that are set in copies, after the changes of the route.
            "set_request", Kind::Names("a table");
            /// Fields that copies do not have, such as `["Authorization", "Cookie"]`.
            "remove_request", Kind::Texts("a name or an array of them");
        },
    ],
);

/// Entry of `to`
pub(crate) static SPLIT_PART: Section = section(
    "an entry of `to`",
    &[
        keys! {
            /// HTTP service whose servers get a part of the requests.
            "service" = required, Kind::Text("name of a service");
        },
        SplitPart::KEYS,
    ],
);

/// `[service.route.respond]`
pub(crate) static RESPOND: Section = section(
    "[service.route.respond]",
    &[keys! {
        /// Status of the answer.
        "status" = required, Kind::Number(200, 599);
        /// Content, up to 1 MiB, read when the configuration is loaded; empty when absent.
        "file", Kind::Text("a path ending in `.html`, `.htm`, `.txt`, `.json`, `.xml` or `.svg`");
    }],
);

/// `[service.route.basic_auth]`
pub(crate) static BASIC_AUTH: Section = section(
    "[service.route.basic_auth]",
    &[keys! {
        /// Hashes of passwords by user: `{ ann = "$2y$10$…" }`.
        "users", Kind::Names("a table");
        /// File with lines `NAME:HASH`, as `htpasswd -B` writes them; only its owner may read it
        /// (mode 600, or 640). Read when the configuration is loaded.
        "users_file", PATH;
        /// Name of the area, which browsers show.
        "realm" = "restricted", TEXT;
    }],
);

/// `[service.sticky]`
pub(crate) static STICKY: Section = section("[service.sticky]", &[StickyPlan::KEYS]);

/// Words of `compress`.
pub(crate) const COMPRESS_WORDS: &[&str] = &["br", "gzip"];

/// Words of `on`.
pub(crate) const RETRY_WORDS: &[&str] = &["unsent", "idempotent", "put", "delete"];

/// `[service.retry]`
pub(crate) static RETRY: Section = section(
    "[service.retry]",
    &[
        keys! {
            /// `unsent`: requests that no server has received; `idempotent`: GET, HEAD and OPTIONS;
            /// `put` and `delete`: these methods, which applications do not always implement as
            /// idempotent.
            "on" = ["unsent", "idempotent"], Kind::Words(RETRY_WORDS);
        },
        RetryPlan::KEYS,
    ],
);
