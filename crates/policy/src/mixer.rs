//! Mixes the bits of numbers (splitmix64).

/// Increment of splitmix64.
pub(crate) const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads all bits over all bits, so that even consecutive numbers are good keys.
pub(crate) fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(INCREMENT);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
