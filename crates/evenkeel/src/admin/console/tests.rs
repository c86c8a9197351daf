//! The console as its clients see it, byte by byte.

mod mysql;
mod postgres;

use super::{Console, Guard};
use crate::admin::tests::world::World;

/// A console that is asked from anywhere.
fn console(world: &World, token: Option<&str>) -> Console {
    Console {
        control: world.control.clone(),
        guard: std::sync::Arc::new(Guard::new(token)),
        averages: std::sync::Arc::default(),
        selects: std::sync::Arc::default(),
    }
}
