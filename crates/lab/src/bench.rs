//! `evenkeel-lab bench`: the published experiments again, on this machine.

#[expect(dead_code, unused_imports, reason = "the runner and the report are built on it")]
pub(crate) mod outcome;
