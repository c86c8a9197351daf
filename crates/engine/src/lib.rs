//! Machinery of the data plane: worker threads with their tasks, timers and pollers, and what tasks
//! use: sockets, streams under TLS, listeners, and a relay between two sockets.
//!
//! The engine knows no service and no session. Its user keeps a state of its own on each worker,
//! and asks a worker to run a closure with that state ([`engine::Workers`]). All `unsafe` code
//! of the product is here.

mod accepting;
mod batching;
pub mod clock;
pub mod double_fork;
pub mod engine;
mod executor;
mod fast_random;
pub mod listen;
pub mod locked_memory;
pub mod panics;
mod random;
mod reactor;
pub mod relay;
mod ring;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod socket;
mod spare_buffers;
pub mod stream;
pub mod timers;
mod wakeup;
pub mod worker;

pub use fast_random::fast_random;
pub use random::secret;
