//! Decoder of field blocks (RFC 7541 §3, §6).

use std::ops::Range;

use super::table::{Pair, STATIC, STATIC_COUNT, Table};
use super::{CompressionError, TABLE_BYTES_DEFAULT, huffman, integer};

/// The most bytes of working memory that a decoder keeps from one block to the next.
const SCRATCH_KEPT_BYTES: usize = 2_048;

/// Recipient of decoded fields.
pub trait FieldSink {
    /// Takes a field. Returns false if it takes no further ones.
    fn field(&mut self, name: &[u8], value: &[u8]) -> bool;
}

/// Decoder of the field blocks of one connection.
#[derive(Debug)]
pub struct Decoder {
    pub(super) table: Table,
    /// Names and values of one field that are not in the block as they are.
    scratch: Vec<u8>,
    /// Our setting.
    announced: u32,
    setting: Setting,
}

/// Knowledge that the peer has of our setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// The setting is below the default, and may not have reached the peer.
    Lowered,
    /// The peer has acknowledged a setting below the default: a change of the size must come.
    Awaited,
    Known,
}

/// Name or value of a field that is being decoded.
enum Text<'a> {
    Borrowed(&'a [u8]),
    /// Range of the scratch memory.
    Decoded(Range<usize>),
}

impl Text<'_> {
    #[inline]
    fn of<'a>(&'a self, scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Borrowed(bytes) => bytes,
            Text::Decoded(range) => scratch.get(range.clone()).unwrap_or_default(),
        }
    }
}

impl Decoder {
    /// Creates a decoder. `table_bytes_max` is our SETTINGS_HEADER_TABLE_SIZE. One below 4,096
    /// holds from [`Decoder::setting_acknowledged`] on.
    #[must_use]
    pub fn new(table_bytes_max: u32) -> Self {
        Decoder {
            table: Table::new(TABLE_BYTES_DEFAULT),
            scratch: Vec::new(),
            announced: table_bytes_max,
            setting: match table_bytes_max < TABLE_BYTES_DEFAULT {
                true => Setting::Lowered,
                false => Setting::Known,
            },
        }
    }

    /// Notes that the peer has acknowledged our SETTINGS. If they lowered the table's size, the
    /// next block must begin with the change (RFC 9113 §4.3.1).
    pub fn setting_acknowledged(&mut self) {
        if self.setting == Setting::Lowered {
            self.setting = match self.table.size_max() > self.announced {
                true => Setting::Awaited,
                false => Setting::Known,
            };
        }
    }

    /// Decodes a whole field block: the fragments of HEADERS and CONTINUATION together.
    ///
    /// `sink` receives the fields until it refuses one. Decoding goes on without it, because the
    /// table must follow (RFC 9113 §4.3). After an error, the decoder must not be used again.
    pub fn decode(
        &mut self,
        block: &[u8],
        sink: &mut impl FieldSink,
    ) -> Result<(), CompressionError> {
        let mut rest = self.size_updates(block)?;
        let mut wanted = true;
        while let Some(&first) = rest.first() {
            rest = match first {
                0x80.. => self.indexed(rest, sink, &mut wanted)?,
                0x40.. => self.literal(rest, 6, sink, &mut wanted)?,
                0x20.. => return Err(CompressionError::SizeUpdatePlace),
                // Without indexing, or never indexed.
                _ => self.literal(rest, 4, sink, &mut wanted)?,
            };
        }
        if self.scratch.capacity() > SCRATCH_KEPT_BYTES {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Obeys the changes of the table's size at the beginning of a block: at most two, the smallest
    /// size in between and the last one (RFC 7541 §4.2). Returns the bytes after them.
    fn size_updates<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], CompressionError> {
        let mut rest = block;
        for _ in 0..2 {
            let Some(0x20..0x40) = rest.first() else {
                break;
            };
            let (size, after) = integer::read(rest, 5)?;
            let size_max = match self.setting {
                Setting::Lowered => TABLE_BYTES_DEFAULT,
                Setting::Awaited | Setting::Known => self.announced,
            };
            if size > size_max {
                return Err(CompressionError::SizeUpdateTooLarge);
            }
            self.table.set_size_max(size);
            if self.setting == Setting::Awaited {
                self.setting = Setting::Known;
            }
            rest = after;
        }
        match self.setting {
            Setting::Awaited => Err(CompressionError::SizeUpdateMissing),
            Setting::Lowered | Setting::Known => Ok(rest),
        }
    }

    /// Decodes a field that is in a table (RFC 7541 §6.1). Returns the bytes after it.
    #[inline]
    fn indexed<'a>(
        &self,
        input: &'a [u8],
        sink: &mut impl FieldSink,
        wanted: &mut bool,
    ) -> Result<&'a [u8], CompressionError> {
        let (index, rest) = integer::read(input, 7)?;
        let (name, value) = match place(index)? {
            Place::Static(pair) => pair,
            Place::Dynamic(age) => self.table.get(age).ok_or(CompressionError::Index)?,
        };
        *wanted = *wanted && sink.field(name, value);
        Ok(rest)
    }

    /// Decodes a literal field (RFC 7541 §6.2), and adds it to the table if its prefix has 6 bits.
    /// Returns the bytes after it.
    fn literal<'a>(
        &mut self,
        input: &'a [u8],
        prefix_bits: u32,
        sink: &mut impl FieldSink,
        wanted: &mut bool,
    ) -> Result<&'a [u8], CompressionError> {
        let (index, rest) = integer::read(input, prefix_bits)?;
        self.scratch.clear();
        let (name, rest) = match index {
            0 => string(&mut self.scratch, rest)?,
            index => (self.name(index)?, rest),
        };
        let (value, rest) = string(&mut self.scratch, rest)?;
        let (name, value) = (name.of(&self.scratch), value.of(&self.scratch));
        *wanted = *wanted && sink.field(name, value);
        if prefix_bits == 6 {
            self.table.add(name, value);
        }
        Ok(rest)
    }

    /// Returns the name of an entry. That of a dynamic entry is copied, because adding a field may
    /// drop the entry (RFC 7541 §4.4).
    fn name(&mut self, index: u32) -> Result<Text<'static>, CompressionError> {
        match place(index)? {
            Place::Static((name, _)) => Ok(Text::Borrowed(name)),
            Place::Dynamic(age) => {
                let (name, _) = self.table.get(age).ok_or(CompressionError::Index)?;
                self.scratch.extend_from_slice(name);
                Ok(Text::Decoded(0..name.len()))
            }
        }
    }
}

/// Place of an entry in the two tables.
enum Place {
    Static(Pair<'static>),
    /// Number of entries that were added after it.
    Dynamic(usize),
}

/// Returns the place of an index (RFC 7541 §2.3.3).
#[inline]
fn place(index: u32) -> Result<Place, CompressionError> {
    let place = (index as usize).checked_sub(1);
    let place = place.ok_or(CompressionError::Index)?;
    Ok(match STATIC.get(place) {
        Some(pair) => Place::Static(*pair),
        None => Place::Dynamic(place.wrapping_sub(STATIC_COUNT)),
    })
}

/// Reads a string (RFC 7541 §5.2). Returns it and the bytes after it.
#[inline]
fn string<'a>(
    scratch: &mut Vec<u8>,
    input: &'a [u8],
) -> Result<(Text<'a>, &'a [u8]), CompressionError> {
    let is_code = input.first().is_some_and(|octet| octet & 0x80 != 0);
    let (length, rest) = integer::read(input, 7)?;
    let (bytes, rest) = rest
        .split_at_checked(length as usize)
        .ok_or(CompressionError::Truncated)?;
    if !is_code {
        return Ok((Text::Borrowed(bytes), rest));
    }
    let start = scratch.len();
    huffman::decode(scratch, bytes)?;
    Ok((Text::Decoded(start..scratch.len()), rest))
}
