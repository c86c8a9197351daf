//! SipHash-2-4 with a result of 128 bits: a hash that only the holder of a secret key can compute.
//!
//! Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), and the variant of
//! 128 bits in its reference implementation. The time depends on the length of the input only.

use std::fmt;

use zeroize::Zeroize;

/// Secret key. Never printed; wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey([u64; 2]);

impl HashKey {
    /// Makes a key of 16 bytes, which must be random and secret.
    pub fn new(bytes: [u8; 16]) -> HashKey {
        let value = u128::from_le_bytes(bytes);
        HashKey([value as u64, (value >> 64) as u64])
    }

    /// Returns the hash of a list of numbers.
    pub fn hash(&self, words: &[u64]) -> u128 {
        let mut state = State::new(self);
        for word in words {
            state.word(*word);
        }
        // The last word is the length in bytes, of which 8 bits count.
        state.finish((words.len() as u64 * 8) << 56)
    }
}

impl Drop for HashKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(***)")
    }
}

struct State {
    v: [u64; 4],
}

impl State {
    fn new(HashKey([k0, k1]): &HashKey) -> State {
        State {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        self.rounds(2);
        self.v[0] ^= word;
    }

    fn finish(mut self, last: u64) -> u128 {
        self.word(last);
        self.v[2] ^= 0xee;
        self.rounds(4);
        let low = self.sum();
        self.v[1] ^= 0xdd;
        self.rounds(4);
        u128::from(self.sum()) << 64 | u128::from(low)
    }

    fn sum(&self) -> u64 {
        self.v.iter().fold(0, |sum, v| sum ^ v)
    }

    fn rounds(&mut self, count: u32) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        for _ in 0..count {
            v0 = v0.wrapping_add(v1);
            v1 = v1.rotate_left(13) ^ v0;
            v0 = v0.rotate_left(32);
            v2 = v2.wrapping_add(v3);
            v3 = v3.rotate_left(16) ^ v2;
            v0 = v0.wrapping_add(v3);
            v3 = v3.rotate_left(21) ^ v0;
            v2 = v2.wrapping_add(v1);
            v1 = v1.rotate_left(17) ^ v2;
            v2 = v2.rotate_left(32);
        }
        self.v = [v0, v1, v2, v3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> HashKey {
        HashKey::new(std::array::from_fn(|index| index as u8))
    }

    /// Values of `openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16
    /// SIPHASH` over the bytes 0, 1, 2, …
    #[test]
    fn the_hash_has_the_values_of_another_implementation() {
        let words = [
            0x0706_0504_0302_0100,
            0x0f0e_0d0c_0b0a_0908,
            0x1716_1514_1312_1110,
        ];
        for (count, expect) in [
            (0, "a3817f04ba25a8e66df67214c7550293"),
            (1, "3b62a9ba6258f5610f83e264f31497b4"),
            (2, "6ee2a4ca67b054bbfd3315bf85230577"),
            (3, "2db479ae78bd50d8882a8a178a6132ad"),
        ] {
            let hash = key().hash(&words[..count]).to_le_bytes();
            let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expect, "{count} words");
        }
    }

    #[test]
    fn another_key_gives_another_hash_and_no_key_is_printed() {
        let other = HashKey::new([1; 16]);
        assert_ne!(key().hash(&[1]), other.hash(&[1]));
        assert_eq!(format!("{other:?}"), "HashKey(***)");
    }
}
