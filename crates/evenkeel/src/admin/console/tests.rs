//! Tests the console at the level of protocol bytes.

mod mysql;
mod postgres;

use super::{Console, Guard};
use crate::admin::tests::world::World;

/// Returns a console with the given token.
fn console(world: &World, token: Option<&str>) -> Console {
    Console {
        control: world.control.clone(),
        guard: std::sync::Arc::new(Guard::new(token)),
        averages: std::sync::Arc::default(),
        select_runner: std::sync::Arc::default(),
    }
}
