//! Encoder of field blocks (RFC 7541 §6).

use std::collections::VecDeque;

use super::table::{self, Pair, STATIC, STATIC_COUNT, Table};
use super::{TABLE_BYTES_DEFAULT, huffman, integer};
use crate::http::head::same_token;

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
///
/// Each block that was begun must be sent, in the order of encoding: the peer's table follows from
/// all of them, also from those of streams that were reset since.
#[derive(Debug)]
pub struct Encoder {
    pub(super) table: Table,
    /// Marks of the entries of the table, oldest first.
    marks: VecDeque<Mark>,
    /// Hashes of the fields that were not added, a ring.
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

/// Mark of a field, by which entries are found: that of its name in the upper half, and a hash of
/// its value in the lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark(u64);

/// Name of a field, as the tables know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    /// Place of the first entry of the name in the static table.
    Static(u8),
    /// Hash of a name that is not there.
    Other(u32),
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
            marks: VecDeque::new(),
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
        let known = Name::of(name);
        if indexing == Indexing::Never {
            return write_literal(out, 0x10, 4, self.name_index(known, name), name, value);
        }
        if let Name::Static(place) = known
            && let Some(index) = static_pair(place, value)
        {
            return integer::write(out, 0x80, 7, index);
        }
        let mark = Mark::of(known, value);
        if let Some(index) = self.pair_index(mark, known, name, value) {
            return integer::write(out, 0x80, 7, index);
        }
        let index = self.name_index(known, name);
        match self.is_added(indexing, mark, name, value) {
            true => {
                write_literal(out, 0x40, 6, index, name, value);
                if self.table.add_lower_case(name, value) {
                    self.marks.push_back(mark);
                }
                self.forget_dropped();
            }
            false => write_literal(out, 0x00, 4, index, name, value),
        }
    }

    /// Returns whether a field that is in no table is added. One that is larger than the table
    /// would only empty it.
    fn is_added(&mut self, indexing: Indexing, mark: Mark, name: &[u8], value: &[u8]) -> bool {
        let size_max = self.table.size_max();
        match indexing {
            Indexing::Incremental => table::entry_size(name, value) <= size_max,
            Indexing::Repeated if self.recent.contains(&mark.pair()) => {
                table::entry_size(name, value) <= size_max / 4
            }
            Indexing::Repeated => {
                if let Some(place) = self.recent.get_mut(self.recent_at) {
                    *place = mark.pair();
                }
                self.recent_at = self.recent_at.wrapping_add(1) % RECENT;
                false
            }
            Indexing::Without | Indexing::Never => false,
        }
    }

    /// Drops the marks of entries that the table has dropped.
    fn forget_dropped(&mut self) {
        while self.marks.len() > self.table.len() {
            self.marks.pop_front();
        }
    }

    /// Returns the index of an entry with the same name and value.
    #[inline]
    fn pair_index(&self, mark: Mark, name: Name, text: &[u8], value: &[u8]) -> Option<u32> {
        self.find(
            |found| found == mark,
            |(its_name, its_value)| its_value == value && name.is_same(its_name, text),
        )
    }

    /// Returns the index of an entry with the same name. Zero if there is none.
    fn name_index(&self, name: Name, text: &[u8]) -> u32 {
        match name {
            Name::Static(place) => index_of_static(place),
            Name::Other(_) => {
                let found = self.find(
                    |found| found.name() == name.mark(),
                    |(its_name, _)| name.is_same(its_name, text),
                );
                found.unwrap_or(0)
            }
        }
    }

    /// Returns the index of the newest entry whose mark and text fit.
    #[inline]
    fn find(&self, may_be: impl Fn(Mark) -> bool, is: impl Fn(Pair<'_>) -> bool) -> Option<u32> {
        let (older, newer) = self.marks.as_slices();
        let mut age = 0_usize;
        for marks in [newer, older] {
            for &mark in marks.iter().rev() {
                if may_be(mark) && self.table.get(age).is_some_and(&is) {
                    return Some(dynamic_index(age));
                }
                age = age.wrapping_add(1);
            }
        }
        None
    }
}

impl Mark {
    #[inline]
    fn of(name: Name, value: &[u8]) -> Self {
        let name = u64::from(name.mark());
        Mark(name << 32 | u64::from(hash(name, value, 0)))
    }

    #[inline]
    fn name(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns a hash of name and value.
    #[inline]
    fn pair(self) -> u32 {
        self.name().wrapping_mul(0x9e37_79b1) ^ self.0 as u32
    }
}

impl Name {
    #[inline]
    fn of(name: &[u8]) -> Self {
        let hash = name_hash(name);
        let mut slot = slot_of(hash);
        loop {
            let place = NAMES.get(slot).copied().unwrap_or(NONE);
            match STATIC.get(usize::from(place)) {
                None => return Name::Other(hash),
                Some((found, _)) if same_token(found, name) => return Name::Static(place),
                Some(_) => slot = slot.wrapping_add(1) % SLOTS,
            }
        }
    }

    #[inline]
    fn mark(self) -> u32 {
        match self {
            Name::Static(place) => u32::from(place),
            Name::Other(hash) => hash | 1 << 31,
        }
    }

    /// Returns whether two texts with the mark of this name are the same name.
    #[inline]
    fn is_same(self, a: &[u8], b: &[u8]) -> bool {
        matches!(self, Name::Static(_)) || a.eq_ignore_ascii_case(b)
    }
}

/// Returns the index of the entry that was added `age` entries before the newest.
fn dynamic_index(age: usize) -> u32 {
    (age as u32)
        .wrapping_add(STATIC_COUNT as u32)
        .wrapping_add(1)
}

fn index_of_static(place: u8) -> u32 {
    u32::from(place).wrapping_add(1)
}

/// Returns the index of the static entry with a value, among those of the name that begins at
/// `place`.
#[inline]
fn static_pair(place: u8, value: &[u8]) -> Option<u32> {
    let first = usize::from(place);
    let count = usize::from(VALUES.get(first).copied().unwrap_or(0));
    let entries = STATIC.get(first..first.wrapping_add(count))?;
    let offset = entries.iter().position(|(_, found)| *found == value)?;
    Some(index_of_static(place).wrapping_add(offset as u32))
}

#[inline]
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
        let bytes = name.iter().map(u8::to_ascii_lowercase);
        write_string(out, bytes, name.len());
    }
    write_string(out, value.iter().copied(), value.len());
}

/// Appends a string of `length` bytes, as Huffman code where that is shorter.
#[inline]
fn write_string(out: &mut Vec<u8>, text: impl Iterator<Item = u8> + Clone, length: usize) {
    let start = out.len();
    // The length of most codes is one octet, which is written when it is known.
    out.push(0x80);
    huffman::encode(out, text.clone());
    let code_length = out.len().wrapping_sub(start).wrapping_sub(1);
    match out.get_mut(start) {
        Some(octet) if code_length < length && code_length < 0x7f => *octet |= code_length as u8,
        _ => {
            out.truncate(start);
            if code_length < length {
                integer::write(out, 0x80, 7, code_length as u32);
                huffman::encode(out, text);
            } else {
                integer::write(out, 0x00, 7, length as u32);
                out.extend(text);
            }
        }
    }
}

/// Slots of the table of static names, a power of two.
const SLOTS: usize = 256;

/// Place of the first static entry of a name by slot, with linear probing; `NONE` where no name is.
static NAMES: [u8; SLOTS] = static_names();
const NONE: u8 = u8::MAX;

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

/// Number of static entries of a name, by the place of the first one. Those with the empty value
/// are not counted, because their fields hardly occur.
static VALUES: [u8; STATIC_COUNT] = static_values();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs when the program is compiled"
)]
const fn static_values() -> [u8; STATIC_COUNT] {
    let mut values = [0; STATIC_COUNT];
    let (mut place, mut first) = (0, 0);
    while place < STATIC_COUNT {
        if name_hash(STATIC[place].0) != name_hash(STATIC[first].0) {
            first = place;
        }
        if !STATIC[place].1.is_empty() {
            values[first] += 1;
        }
        place += 1;
    }
    values
}

const fn slot_of(name_hash: u32) -> usize {
    (name_hash >> 8) as usize % SLOTS
}

/// Returns a hash of a name, which is the same in any case of its letters.
#[inline]
const fn name_hash(name: &[u8]) -> u32 {
    hash(0, name, u64::from_ne_bytes([0x20; 8]))
}

/// Returns a hash of the length and of the first, middle and last 8 bytes, each with the bits of
/// `set` set. Equal hashes are followed by a comparison, so that a part of the bytes is enough.
#[inline]
const fn hash(seed: u64, bytes: &[u8], set: u64) -> u32 {
    let words = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            let (_, second_half) = bytes.split_at(bytes.len() >> 1);
            let middle = match second_half.first_chunk::<8>() {
                Some(middle) => u64::from_le_bytes(*middle),
                None => 0,
            };
            [
                u64::from_le_bytes(*first),
                u64::from_le_bytes(*last),
                middle,
            ]
        }
        _ => {
            let (mut word, mut rest) = (0_u64, bytes);
            while let Some((&byte, after)) = rest.split_first() {
                word = word << 8 | byte as u64;
                rest = after;
            }
            [word, 0, 0]
        }
    };
    let sum = (words[0] | set)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add((words[1] | set).wrapping_mul(0xd6e8_feb8_6659_fd93))
        .wrapping_add((words[2] | set).wrapping_mul(0xa076_1d64_78bd_642f))
        .wrapping_add(seed.wrapping_mul(0xe703_7ed1_a0b4_28db))
        .wrapping_add(bytes.len() as u64);
    (sum ^ (sum >> 32))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_shr(32) as u32
}
