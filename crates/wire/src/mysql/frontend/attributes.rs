//! Parses parameters and query attributes: the limits of each value, by its type.

use super::Execute;
use crate::mysql::cursor::Cursor;
use crate::mysql::flags::Capabilities;

/// The most parameters that servers accept.
const COUNT_MAX: u64 = 65_535;

/// The parameters of a COM_STMT_EXECUTE, query attributes among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// The four bytes of the number of executions.
    pub iterations: &'a [u8],
    /// How many parameters there are, attributes included.
    pub count: usize,
    /// NULL bitmap: one bit for each parameter.
    pub nulls: &'a [u8],
    /// Types, and names if they were agreed on. `None`: those of the last execution.
    pub types: Option<&'a [u8]>,
    /// The values.
    pub values: &'a [u8],
    named: bool,
}

/// Parses the parameters of an execution. `prepared` is the number of the statement's parameters,
/// which is used where query attributes were not agreed on.
#[must_use]
pub fn parameters<'a>(
    execute: &Execute<'a>,
    prepared: u16,
    agreed: Capabilities,
) -> Option<Parameters<'a>> {
    let mut body = Cursor(execute.values);
    let iterations = body.bytes(4)?;
    let named = agreed.has(Capabilities::QUERY_ATTRIBUTES);
    let counted = named && (prepared > 0 || execute.flags & Execute::COUNT_AVAILABLE != 0);
    let count = match counted {
        true => body.lenenc().filter(|count| *count <= COUNT_MAX)?,
        false => u64::from(prepared),
    };
    let count = usize::try_from(count).ok()?;
    let mut found = Parameters {
        iterations,
        count,
        nulls: &[],
        types: None,
        values: &[],
        named,
    };
    if count > 0 {
        found.nulls = body.bytes(count.div_ceil(8))?;
        if body.byte()? != 0 {
            let types = body.0;
            for _ in 0..count {
                body.le_u16()?;
                if named {
                    body.lenenc_bytes()?;
                }
            }
            let length = types.len().saturating_sub(body.0.len());
            found.types = types.get(..length);
        }
        found.values = body.rest();
    }
    Some(found)
}

/// Returns the type and the name of each parameter. `named`: they have names.
pub fn typed(types: &[u8], named: bool) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = Cursor(types);
    std::iter::from_fn(move || {
        let kind = rest.le_u16()?;
        let name = match named {
            true => rest.lenenc_bytes()?,
            false => &[],
        };
        Some((kind, name))
    })
}

impl<'a> Parameters<'a> {
    /// Returns the type and the name of each parameter.
    pub fn typed(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        typed(self.types.unwrap_or_default(), self.named)
    }

    /// Returns the types of the first `count` parameters, names included, if present.
    #[must_use]
    pub fn types_of_first(self, count: usize) -> Option<&'a [u8]> {
        let whole = self.types?;
        let mut rest = Cursor(whole);
        for _ in 0..count {
            rest.le_u16()?;
            if self.named {
                rest.lenenc_bytes()?;
            }
        }
        whole.get(..whole.len().saturating_sub(rest.0.len()))
    }

    /// Returns the values of the first `count` parameters, if the types are present.
    #[must_use]
    pub fn values_of_first(self, count: usize) -> Option<&'a [u8]> {
        let mut rest = Cursor(self.values);
        let mut types = self.typed();
        for index in 0..count {
            let (kind, _) = types.next()?;
            if !is_null(self.nulls, index)? {
                skip_value(&mut rest, kind)?;
            }
        }
        let length = self.values.len().saturating_sub(rest.0.len());
        self.values.get(..length)
    }
}

/// Consumes the attributes of a COM_QUERY, counts included.
pub(super) fn take<'a>(body: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let whole = body.0;
    let count = body.lenenc().filter(|count| *count <= COUNT_MAX)?;
    let count = usize::try_from(count).ok()?;
    // The number of sets, which is always 1.
    body.lenenc()?;
    if count > 0 {
        let nulls = body.bytes(count.div_ceil(8))?;
        // Types must be present: there is no earlier execution.
        (body.byte()? == 1).then_some(())?;
        let mut types = *body;
        for _ in 0..count {
            body.le_u16()?;
            body.lenenc_bytes()?;
        }
        for index in 0..count {
            let kind = types.le_u16()?;
            types.lenenc_bytes()?;
            if !is_null(nulls, index)? {
                skip_value(body, kind)?;
            }
        }
    }
    whole.get(..whole.len().saturating_sub(body.0.len()))
}

fn is_null(nulls: &[u8], index: usize) -> Option<bool> {
    let byte = nulls.get(index >> 3)?;
    Some(byte >> (index & 7) & 1 == 1)
}

/// Skips a value in the binary protocol.
fn skip_value(body: &mut Cursor<'_>, kind: u16) -> Option<()> {
    let length = match kind & 0xff {
        // NULL
        6 => 0,
        // TINY, BOOL
        1 | 244 => 1,
        // SHORT, YEAR
        2 | 13 => 2,
        // LONG, FLOAT, INT24
        3 | 4 | 9 => 4,
        // DOUBLE, LONGLONG
        5 | 8 => 8,
        // TIMESTAMP, DATE, TIME, DATETIME, NEWDATE
        7 | 10 | 11 | 12 | 14 => usize::from(body.byte()?),
        _ => usize::try_from(body.lenenc()?).ok()?,
    };
    body.bytes(length).map(|_| ())
}
