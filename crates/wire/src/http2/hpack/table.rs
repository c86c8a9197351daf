//! The static and the dynamic table of fields (RFC 7541 §2.3).

use std::collections::VecDeque;
use std::ops::Range;

use super::FIELD_OVERHEAD_BYTES;

/// Field of a table: name and value.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

/// The static table (RFC 7541, appendix A). Its first entry has the index 1.
pub(super) static STATIC: [Pair<'static>; STATIC_COUNT] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

pub(super) const STATIC_COUNT: usize = 61;

/// The fewest bytes of memory that a table with an entry has.
const CAPACITY_MIN: usize = 256;

/// Dynamic table: fields in the order in which they were added. An entry counts 32 bytes besides
/// its name and value.
///
/// The bytes of all entries are in one buffer, one after another. The oldest entry leaves a gap at
/// its front. When its end is reached, the bytes move to the front: nothing is allocated while the
/// table keeps its size.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// Oldest entry first.
    entries: VecDeque<Entry>,
    /// Position of the first byte of `bytes`. Positions count all bytes that were ever added, with
    /// overflow.
    origin: u32,
    size: u32,
    size_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Position of the name, which the value follows.
    start: u32,
    name_length: u32,
    value_length: u32,
}

impl Table {
    pub(super) fn new(size_max: u32) -> Self {
        Table {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            origin: 0,
            size: 0,
            size_max,
        }
    }

    pub(super) fn size_max(&self) -> u32 {
        self.size_max
    }

    /// Returns the size of all entries.
    #[cfg(test)]
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Returns the bytes of memory for names and values.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Changes the largest size (RFC 7541 §4.3).
    pub(super) fn set_size_max(&mut self, size_max: u32) {
        self.size_max = size_max;
        self.evict(0);
        if self.entries.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Returns the entry that was added `age` entries before the newest.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<Pair<'_>> {
        let place = self.entries.len().checked_sub(age)?.checked_sub(1)?;
        self.entries.get(place).map(|entry| self.pair(entry))
    }

    #[inline]
    fn pair(&self, entry: &Entry) -> Pair<'_> {
        let start = entry.start.wrapping_sub(self.origin) as usize;
        let bytes = self.bytes.get(start..).unwrap_or_default();
        let (name, rest) = (bytes.split_at_checked(entry.name_length as usize)).unwrap_or_default();
        let value = rest.get(..entry.value_length as usize);
        (name, value.unwrap_or_default())
    }

    /// Adds an entry, and drops the oldest ones to make room. Returns false if it is larger than
    /// the table: the table is empty then (RFC 7541 §4.4).
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.add_name(name, value).is_some()
    }

    /// Adds an entry as [`Table::add`] does, with its name in lower case.
    pub(super) fn add_lower_case(&mut self, name: &[u8], value: &[u8]) -> bool {
        let range = self.add_name(name, value);
        let added = range.is_some();
        let name = range.and_then(|range| self.bytes.get_mut(range));
        name.unwrap_or_default().make_ascii_lowercase();
        added
    }

    /// Adds an entry. Returns the range of its name.
    fn add_name(&mut self, name: &[u8], value: &[u8]) -> Option<Range<usize>> {
        let size = entry_size(name, value);
        self.evict(size);
        if size > self.size_max {
            return None;
        }
        let length = name.len().wrapping_add(value.len());
        self.make_room(length);
        let start = self.bytes.len();
        self.entries.push_back(Entry {
            start: self.origin.wrapping_add(start as u32),
            name_length: name.len() as u32,
            value_length: value.len() as u32,
        });
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size = self.size.wrapping_add(size);
        Some(start..start.wrapping_add(name.len()))
    }

    /// Drops the oldest entries until one of a size fits.
    fn evict(&mut self, size: u32) {
        while self.size > self.size_max.saturating_sub(size) {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            let lengths = entry.name_length.wrapping_add(entry.value_length);
            let size = lengths.wrapping_add(FIELD_OVERHEAD_BYTES);
            self.size = self.size.saturating_sub(size);
        }
    }

    /// Makes room for `length` bytes after the last entry.
    fn make_room(&mut self, length: usize) {
        if length <= self.bytes.capacity().saturating_sub(self.bytes.len()) {
            return;
        }
        let gap = match self.entries.front() {
            Some(oldest) => oldest.start.wrapping_sub(self.origin),
            None => self.bytes.len() as u32,
        };
        self.bytes.drain(..self.bytes.len().min(gap as usize));
        self.origin = self.origin.wrapping_add(gap);
        let needed = self.bytes.len().saturating_add(length);
        let capacity = self.bytes.capacity();
        if needed > capacity {
            // The entries never have more bytes than the table's size.
            let doubled = capacity.saturating_mul(2).max(CAPACITY_MIN);
            let capacity = doubled.min(self.size_max as usize).max(needed);
            let additional = capacity.saturating_sub(self.bytes.len());
            self.bytes.reserve_exact(additional);
        }
    }
}

/// Returns the size that a field has in a table (RFC 7541 §4.1).
#[inline]
pub(super) fn entry_size(name: &[u8], value: &[u8]) -> u32 {
    let length = name.len().saturating_add(value.len());
    u32::try_from(length).map_or(u32::MAX, |length| {
        length.saturating_add(FIELD_OVERHEAD_BYTES)
    })
}
