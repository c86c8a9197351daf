//! Tests of `protocol = "postgres"` in front of a real primary with replicas: where statements run,
//! what reads see, and what clients notice when servers fail.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

#[path = "split/cancel.rs"]
mod cancel;
#[path = "split/causality.rs"]
mod causality;
#[allow(dead_code, reason = "the tests of pools use the rest")]
#[path = "postgres/client.rs"]
mod client;
#[path = "split/failover.rs"]
mod failover;
#[path = "split/flushes.rs"]
mod flushes;
#[path = "split/lagging.rs"]
mod lagging;
#[path = "split/monitor_load.rs"]
mod monitor_load;
#[path = "split/placement.rs"]
mod placement;
#[path = "split/rescue.rs"]
mod rescue;
#[allow(dead_code, reason = "the tests of pools use the rest")]
#[path = "postgres/script.rs"]
mod script;
#[path = "split/stage.rs"]
mod stage;
