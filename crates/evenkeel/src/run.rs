//! Runs a plan: starts the data plane and the control plane, and ends when told.

use crate::config::Plan;

/// Runs until a signal ends it.
pub fn run(_plan: Plan) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Err("this build has no data plane".into())
}
