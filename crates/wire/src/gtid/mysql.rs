//! Parses MySQL's GTID sets: a UUID, then intervals and tags (MySQL 8.3), which apply to the
//! intervals after them.

use super::text::Text;
use super::{Expected, ParseError};

/// One interval of a MySQL set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval<'a> {
    /// UUID of the source, as written; compare without regard to case.
    pub uuid: &'a str,
    /// Tag of the source; empty if there is none.
    pub tag: &'a str,
    /// The first transaction, from 1.
    pub first: u64,
    /// The last transaction, inclusive.
    pub last: u64,
}

/// Iterator over the intervals of a set, in the order of the text.
#[derive(Debug, Clone)]
pub struct Mysql<'a> {
    text: Text<'a>,
    state: State<'a>,
}

#[derive(Debug, Clone, Copy)]
enum State<'a> {
    /// A UUID or the end of the text follows: servers end no list with a comma, but accept one.
    Source,
    /// The intervals of a source.
    Intervals {
        uuid: &'a str,
        tag: &'a str,
    },
    Ended,
}

impl<'a> Mysql<'a> {
    pub(super) fn new(text: &'a [u8]) -> Mysql<'a> {
        Mysql {
            text: Text::new(text),
            state: State::Source,
        }
    }

    fn step(&mut self) -> Result<Option<Interval<'a>>, ParseError> {
        self.text.skip_space();
        match self.state {
            State::Ended => Ok(None),
            State::Source if self.text.is_at_end() => Ok(None),
            State::Source => {
                let uuid = self.text.uuid()?;
                self.interval(uuid, "").map(Some)
            }
            State::Intervals { uuid, tag } => self.interval(uuid, tag).map(Some),
        }
    }

    /// Reads a colon, an optional tag with its colon, and an interval; then sets the next state.
    fn interval(&mut self, uuid: &'a str, tag: &'a str) -> Result<Interval<'a>, ParseError> {
        self.colon()?;
        let tag = match self.text.tag()? {
            None => tag,
            Some(tag) => {
                self.text.skip_space();
                self.colon()?;
                tag
            }
        };
        let (first, last) = self.span()?;
        self.text.skip_space();
        // The next colon is not consumed: `interval` begins with one.
        self.state = match () {
            () if self.text.is_at(b':') => State::Intervals { uuid, tag },
            () if self.text.take(b',') => State::Source,
            () if self.text.is_at_end() => State::Ended,
            () => return Err(self.text.fault(Expected::CommaOrEnd)),
        };
        Ok(Interval {
            uuid,
            tag,
            first,
            last,
        })
    }

    fn colon(&mut self) -> Result<(), ParseError> {
        self.text.skip_space();
        if !self.text.take(b':') {
            return Err(self.text.fault(Expected::Colon));
        }
        self.text.skip_space();
        Ok(())
    }

    fn span(&mut self) -> Result<(u64, u64), ParseError> {
        let first = self.sequence()?;
        self.text.skip_space();
        if !self.text.take(b'-') {
            return Ok((first, first));
        }
        self.text.skip_space();
        let fault = self.text.fault(Expected::HigherLast);
        let last = self.sequence()?;
        if last < first {
            Err(fault)
        } else {
            Ok((first, last))
        }
    }

    /// Reads a number from 1: "0" names no transaction.
    fn sequence(&mut self) -> Result<u64, ParseError> {
        let fault = self.text.fault(Expected::Sequence);
        match self.text.number(Expected::Sequence)? {
            0 => Err(fault),
            number => Ok(number),
        }
    }
}

impl<'a> Iterator for Mysql<'a> {
    type Item = Result<Interval<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.step();
        if !matches!(read, Ok(Some(_))) {
            self.state = State::Ended;
        }
        read.transpose()
    }
}
