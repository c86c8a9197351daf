//! Data plane: owns every data socket and buffer.
//!
//! [`listen`] accepts a client and assigns it to a worker. `session` then serves it, `upstream`
//! acquires server connections for it, and `relay` copies bytes. The control plane controls the
//! data plane through [`engine::Engine`].

pub mod cancel;
mod clock;
pub mod counters;
pub mod engine;
mod error_catalog;
mod fast_random;
pub mod listen;
pub mod monitor;
mod numbers;
pub mod probe;
mod random;
pub mod record;
mod relay;
mod server;
pub mod server_info;
mod service;
mod session;
pub mod session_state;
pub mod settings;
mod socket;
mod stream;
mod upstream;

pub use clock::{now_ms, now_us};
pub use fast_random::fast_random;
pub use random::secret;
pub use server::{Endpoint, Server};
pub use service::{Protocol, Service, ServiceSnapshot, database, digests, rules, stats};
