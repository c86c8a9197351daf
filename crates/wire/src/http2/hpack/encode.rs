//! Encoder of field blocks (RFC 7541 §6).

use std::collections::VecDeque;

use super::table::{self, STATIC, STATIC_COUNT, Table};
use super::{TABLE_BYTES_DEFAULT, huffman, integer};

/// The largest table that an encoder has, whatever the peer allows.
const TABLE_BYTES_MAX: u32 = 4_096;

/// Treatment of a field by the dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    /// The field is added to the table (RFC 7541 §6.2.1).
    Incremental,
    /// The field is added to the table if it was encoded a short time before: fields with a value
    /// of their own in each message do not replace those that return.
    Repeated,
    /// The field is not added (RFC 7541 §6.2.2).
    Without,
    /// The field is a secret, which no table on the way may have (RFC 7541 §6.2.3, §7.1.3).
    Never,
}

/// Encoder of the field blocks of one connection.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// Hashes of the entries of the table, oldest first.
    hashes: VecDeque<FieldHash>,
    /// Hashes of fields that were not added, a ring.
    recent: [u32; RECENT],
    recent_at: usize,
    pending: Option<SizeUpdate>,
}

/// Number of fields that are remembered until they are repeated.
const RECENT: usize = 16;

/// Change of the table's size that the peer does not know.
#[derive(Debug, Clone, Copy)]
struct SizeUpdate {
    /// The smallest size since the last block.
    smallest: u32,
    last: u32,
}

/// Hash of a field: of its name in the upper half, of name and value in the lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldHash {
    name: u32,
    pair: u32,
}

impl Default for Encoder {
    fn default() -> Self {
        Encoder::new()
    }
}

impl Encoder {
    /// Creates an encoder with a table of 4,096 bytes, as it is until the peer's SETTINGS arrive.
    #[must_use]
    pub fn new() -> Self {
        Encoder {
            table: Table::new(TABLE_BYTES_DEFAULT),
            hashes: VecDeque::new(),
            recent: [0; RECENT],
            recent_at: 0,
            pending: None,
        }
    }

    /// Obeys the peer's SETTINGS_HEADER_TABLE_SIZE. The table never has more than 4,096 bytes.
    pub fn set_table_max(&mut self, bytes: u32) {
        let last = bytes.min(TABLE_BYTES_MAX);
        if last == self.table.size_max() && self.pending.is_none() {
            return;
        }
        self.pending = Some(SizeUpdate {
            smallest: self
                .pending
                .map_or(last, |pending| pending.smallest.min(last)),
            last,
        });
        self.table.set_size_max(last);
        self.forget_dropped();
    }

    /// Begins a field block: appends changes of the table's size, if there were any (RFC 7541
    /// §4.2).
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(SizeUpdate { smallest, last }) = self.pending.take() {
            if smallest < last {
                integer::write(out, 0x20, 5, smallest);
            }
            integer::write(out, 0x20, 5, last);
        }
    }

    /// Appends a field. The name may be in any case, and is written in lower case.
    pub fn field(&mut self, out: &mut Vec<u8>, name: &[u8], value: &[u8], indexing: Indexing) {
        let name_hash = name_hash(name);
        if indexing == Indexing::Never {
            let index = self.name_index(name, name_hash);
            return write_literal(out, 0x10, 4, index, name, value);
        }
        let hash = FieldHash {
            name: name_hash as u32,
            pair: pair_hash(name_hash, value),
        };
        let static_place = static_place(name, name_hash);
        if let Some(place) = static_place
            && let Some(index) = static_pair(place, value)
        {
            return integer::write(out, 0x80, 7, index);
        }
        if let Some(index) = self.pair_index(name, value, hash) {
            return integer::write(out, 0x80, 7, index);
        }
        let index = match static_place {
            Some(place) => index_of_static(place),
            None => self.dynamic_name_index(name, hash.name),
        };
        if self.is_added(indexing, hash, name, value) {
            write_literal(out, 0x40, 6, index, name, value);
            self.add(name, value, hash);
        } else {
            write_literal(out, 0x00, 4, index, name, value);
        }
    }

    /// Returns whether a field that is in no table is added. One that is larger than the table
    /// would only empty it.
    fn is_added(&mut self, indexing: Indexing, hash: FieldHash, name: &[u8], value: &[u8]) -> bool {
        let size_max = self.table.size_max();
        match indexing {
            Indexing::Incremental => table::entry_size(name, value) <= size_max,
            Indexing::Repeated => {
                if self.recent.contains(&hash.pair) {
                    return table::entry_size(name, value) <= size_max / 4;
                }
                if let Some(place) = self.recent.get_mut(self.recent_at) {
                    *place = hash.pair;
                }
                self.recent_at = self.recent_at.wrapping_add(1) % RECENT;
                false
            }
            Indexing::Without | Indexing::Never => false,
        }
    }

    /// Adds a field to the table, with its name in lower case.
    fn add(&mut self, name: &[u8], value: &[u8], hash: FieldHash) {
        if self.table.add_lower_case(name, value) {
            self.hashes.push_back(hash);
        }
        self.forget_dropped();
    }

    /// Drops the hashes of entries that the table has dropped.
    fn forget_dropped(&mut self) {
        while self.hashes.len() > self.table.len() {
            self.hashes.pop_front();
        }
    }

    /// Returns the index of an entry with the same name and value.
    #[inline]
    fn pair_index(&self, name: &[u8], value: &[u8], hash: FieldHash) -> Option<u32> {
        let newest_first = self.hashes.iter().rev().enumerate();
        for (age, _) in newest_first.filter(|(_, found)| **found == hash) {
            let (found, its_value) = self.table.get(age)?;
            if its_value == value && found.eq_ignore_ascii_case(name) {
                return Some(dynamic_index(age));
            }
        }
        None
    }

    /// Returns the index of an entry with the same name. Zero if there is none.
    fn name_index(&self, name: &[u8], name_hash: u64) -> u32 {
        match static_place(name, name_hash) {
            Some(place) => index_of_static(place),
            None => self.dynamic_name_index(name, name_hash as u32),
        }
    }

    fn dynamic_name_index(&self, name: &[u8], name_hash: u32) -> u32 {
        let newest_first = self.hashes.iter().rev().enumerate();
        for (age, _) in newest_first.filter(|(_, found)| found.name == name_hash) {
            if let Some((found, _)) = self.table.get(age)
                && found.eq_ignore_ascii_case(name)
            {
                return dynamic_index(age);
            }
        }
        0
    }
}

/// Returns the index of the entry that was added `age` entries before the newest.
fn dynamic_index(age: usize) -> u32 {
    (age as u32)
        .wrapping_add(STATIC_COUNT as u32)
        .wrapping_add(1)
}

fn index_of_static(place: usize) -> u32 {
    (place as u32).wrapping_add(1)
}

fn write_literal(
    out: &mut Vec<u8>,
    pattern: u8,
    prefix_bits: u32,
    index: u32,
    name: &[u8],
    value: &[u8],
) {
    integer::write(out, pattern, prefix_bits, index);
    if index == 0 {
        write_string(out, name, |byte| byte.to_ascii_lowercase());
    }
    write_string(out, value, |byte| byte);
}

/// Appends a string, as Huffman code where that is shorter.
#[inline]
fn write_string(out: &mut Vec<u8>, text: &[u8], byte: impl Fn(u8) -> u8) {
    let bytes = text.iter().map(|&each| byte(each));
    let code_length = huffman::encoded_length(bytes.clone());
    if code_length < text.len() {
        integer::write(out, 0x80, 7, code_length as u32);
        huffman::encode(out, bytes);
    } else {
        integer::write(out, 0x00, 7, text.len() as u32);
        out.extend(bytes);
    }
}

/// Slots of the table of static names, a power of two.
const SLOTS: usize = 256;

/// Place of the first static entry of a name by slot, with linear probing; `NONE` where no name is.
static NAMES: [u8; SLOTS] = static_names();
const NONE: u8 = u8::MAX;

/// Returns the place of the first static entry of a name.
#[inline]
fn static_place(name: &[u8], name_hash: u64) -> Option<usize> {
    let mut slot = slot_of(name_hash);
    loop {
        let place = NAMES.get(slot).copied().unwrap_or(NONE);
        let (found, _) = STATIC.get(usize::from(place))?;
        if found.eq_ignore_ascii_case(name) {
            return Some(usize::from(place));
        }
        slot = slot.wrapping_add(1) % SLOTS;
    }
}

/// Returns the index of the static entry with the name of the entry at `place`, and a value.
#[inline]
fn static_pair(place: usize, value: &[u8]) -> Option<u32> {
    if value.is_empty() {
        // No static field has the empty value as a meaning, but its entry is such a field.
        let (_, found) = STATIC.get(place)?;
        return found.is_empty().then(|| index_of_static(place));
    }
    let (name, _) = STATIC.get(place)?;
    let mut at = place;
    while let Some((found, its_value)) = STATIC.get(at)
        && found == name
    {
        if *its_value == value {
            return Some(index_of_static(at));
        }
        at = at.wrapping_add(1);
    }
    None
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn static_names() -> [u8; SLOTS] {
    let mut names = [NONE; SLOTS];
    let mut place = 0;
    let mut last_hash = 0;
    while place < STATIC_COUNT {
        let hash = name_hash(STATIC[place].0);
        if hash != last_hash {
            let mut slot = slot_of(hash);
            while names[slot] != NONE {
                slot = (slot + 1) % SLOTS;
            }
            names[slot] = place as u8;
        }
        last_hash = hash;
        place += 1;
    }
    names
}

const fn slot_of(name_hash: u64) -> usize {
    (name_hash >> 40) as usize % SLOTS
}

/// Returns a hash of a name, which is the same in any case of its letters.
const fn name_hash(name: &[u8]) -> u64 {
    hash(0x9e37_79b9_7f4a_7c15, name, u64::from_ne_bytes([0x20; 8]))
}

/// Returns a hash of a name and a value.
#[inline]
fn pair_hash(name_hash: u64, value: &[u8]) -> u32 {
    (hash(name_hash, value, 0) >> 32) as u32
}

/// Returns a hash of bytes, each with the bits of `set` in its word set.
#[inline]
const fn hash(seed: u64, mut bytes: &[u8], set: u64) -> u64 {
    let mut hash = mix(seed, bytes.len() as u64);
    while let Some((word, rest)) = bytes.split_first_chunk::<8>() {
        hash = mix(hash, u64::from_le_bytes(*word) | set);
        bytes = rest;
    }
    let mut word = 0_u64;
    while let Some((&byte, rest)) = bytes.split_first() {
        word = word.wrapping_shl(8) | byte as u64;
        bytes = rest;
    }
    mix(hash, word | set)
}

#[inline]
const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
    product ^ (product >> 32)
}
