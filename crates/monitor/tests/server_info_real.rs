//! Tests the server info read from a real PostgreSQL that this test starts: catalogs, logins,
//! positions.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "server_info_real/catalogs.rs"]
mod catalogs;
#[path = "server_info_real/logins.rs"]
mod logins;
#[path = "server_info_real/places.rs"]
mod places;
#[expect(dead_code, reason = "the probes' tests use the rest of it")]
#[path = "probe_real/rig.rs"]
mod rig;
#[path = "server_info_real/server.rs"]
mod server;
