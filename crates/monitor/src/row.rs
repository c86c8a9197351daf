//! Reads rows of a result by column name.

use std::{fmt, str::FromStr};

use crate::probe::messages;

/// A result that is invalid or incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnexpectedValue(String);

impl UnexpectedValue {
    pub(crate) fn new(what: impl fmt::Display) -> Self {
        let what = messages::truncated(&what.to_string());
        Self(format!("unexpected response from the server: {what}"))
    }

    /// Returns an error for information that the server withholds.
    pub(crate) fn hidden(what: &str) -> Self {
        Self(format!("insufficient privilege to read {what}"))
    }
}

impl fmt::Display for UnexpectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Columns with their values, NULL as `None`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row(Vec<(String, Option<String>)>);

impl Row {
    pub(crate) fn new(cells: impl IntoIterator<Item = (String, Option<String>)>) -> Self {
        Self(cells.into_iter().collect())
    }

    /// Converts rows of "name, value", as returned by `SHOW … VARIABLES`, to one row.
    pub(crate) fn of_pairs(rows: &[Row]) -> Self {
        let pair = |row: &Row| match row.0.as_slice() {
            [(_, Some(name)), (_, value)] => Some((name.clone(), value.clone())),
            _ => None,
        };
        Self(rows.iter().filter_map(pair).collect())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(column, _)| column == name)
    }

    /// Returns the value of the first of these columns that exists: a column's older name comes
    /// second.
    pub(crate) fn value(&self, names: &[&str]) -> Result<Option<&str>, UnexpectedValue> {
        let cell = |name: &&str| self.0.iter().find(|(column, _)| column == name);
        match names.iter().find_map(cell) {
            Some((_, value)) => Ok(value.as_deref()),
            None => Err(UnexpectedValue::new(format!(
                "column {} is missing",
                names.join(" or ")
            ))),
        }
    }

    /// Returns the value of the first column.
    pub(crate) fn first(&self) -> Option<&str> {
        self.0.first()?.1.as_deref()
    }

    /// Returns a value that is never NULL.
    pub(crate) fn text(&self, names: &[&str]) -> Result<&str, UnexpectedValue> {
        let none = || UnexpectedValue::new(format!("{} is NULL", names.join(" or ")));
        self.value(names)?.ok_or_else(none)
    }

    pub(crate) fn number<T: FromStr>(&self, names: &[&str]) -> Result<T, UnexpectedValue> {
        parse(names, self.text(names)?)
    }

    pub(crate) fn number_or_null<T: FromStr>(
        &self,
        names: &[&str],
    ) -> Result<Option<T>, UnexpectedValue> {
        let value = self.value(names)?;
        value.map(|text| parse(names, text)).transpose()
    }

    /// Returns whether a switch is on, in any server's notation.
    pub(crate) fn flag(&self, names: &[&str]) -> Result<bool, UnexpectedValue> {
        match self.text(names)? {
            "0" | "OFF" | "off" | "f" => Ok(false),
            "" => Err(UnexpectedValue::new(format!(
                "{} is empty",
                names.join(" or ")
            ))),
            // Newer servers have several values for on.
            _ => Ok(true),
        }
    }

    /// Returns the only value of a lag query's row: milliseconds or NULL.
    pub(crate) fn lag_ms(&self) -> Result<Option<u64>, UnexpectedValue> {
        let value = match self.0.as_slice() {
            [(_, value)] => value,
            _ => {
                return Err(UnexpectedValue::new(
                    "lag_query returned more than one column",
                ));
            }
        };
        let Some(text) = value else { return Ok(None) };
        let ms: f64 = parse(&["lag_query"], text)?;
        match ms.is_finite() {
            // Clocks may run ahead, but a replica cannot be ahead of its source.
            true => Ok(Some(ms.max(0.0) as u64)),
            false => Err(UnexpectedValue::new(format!("lag_query returned {text}"))),
        }
    }
}

/// Returns the only row of a result.
pub(crate) fn only(rows: Vec<Row>) -> Result<Row, UnexpectedValue> {
    let [row] = <[Row; 1]>::try_from(rows)
        .map_err(|rows| UnexpectedValue::new(format!("{} rows instead of one", rows.len())))?;
    Ok(row)
}

fn parse<T: FromStr>(names: &[&str], text: &str) -> Result<T, UnexpectedValue> {
    let wrong = |_| UnexpectedValue::new(format!("{} is {text:?}", names.join(" or ")));
    text.trim().parse().map_err(wrong)
}

#[cfg(test)]
pub(crate) mod tests;
