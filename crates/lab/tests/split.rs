//! `protocol = "postgres"` in front of a real primary with replicas: where statements run, what
//! reads see, and what clients notice when servers go.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "rig/rig.rs"]
mod rig;

#[path = "split/cancel.rs"]
mod cancel;
#[path = "split/causality.rs"]
mod causality;
#[path = "split/failover.rs"]
mod failover;
#[path = "split/places.rs"]
mod places;
#[path = "split/rescue.rs"]
mod rescue;
#[path = "split/stage.rs"]
mod stage;
