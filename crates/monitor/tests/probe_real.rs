//! Tests the probes against real servers that this test starts, and against peers that misbehave.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "probe_real/asking.rs"]
mod asking;
#[path = "probe_real/http.rs"]
mod http;
#[path = "probe_real/mysql.rs"]
mod mysql;
#[path = "probe_real/peers.rs"]
mod peers;
#[path = "probe_real/postgres.rs"]
mod postgres;
#[path = "probe_real/proxy_header.rs"]
mod proxy_header;
#[path = "probe_real/rig.rs"]
mod rig;
