//! Generates random numbers that need to be evenly distributed but not secret.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock;

/// Returns 64 random bits: splitmix64 over a counter that all threads share.
pub fn fast_random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut z = STATE
        .fetch_add(GOLDEN, Relaxed)
        .wrapping_add(clock::now_us());
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
