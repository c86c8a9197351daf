//! Selects the synchronization primitives: those of the standard library here, those of the model
//! checker in `model`.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(super) use std::sync::{Mutex, MutexGuard};
