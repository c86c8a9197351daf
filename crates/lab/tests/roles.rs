//! Tests of services with a role in front of real clusters: primaries change, replicas fail and
//! rejoin, reads never fail, and no client writes to two servers.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

#[path = "roles/changes.rs"]
mod changes;
#[path = "roles/claims.rs"]
mod claims;
#[path = "roles/operators.rs"]
mod operators;
#[path = "roles/replicas.rs"]
mod replicas;
#[path = "roles/test_bed.rs"]
mod test_bed;
