//! Speaks: pure codecs, bytes to borrowed frames and back; no socket, clock, log or randomness.
#![forbid(unsafe_code)]
// Whatever a peer sends, nothing here may panic. Tests may.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod gtid;
pub mod lsn;
pub mod mysql;
pub mod postgres;
pub mod proxy_header;
pub mod sql;
pub mod stream_editor;
