//! MariaDB's lists of GTIDs: domain, server and sequence number with dashes between them.

use super::text::Text;
use super::{Expected, ParseError};

/// One GTID of a MariaDB list: the last transaction of a server in a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Replication domain.
    pub domain: u32,
    /// Id of the server that wrote the transaction.
    pub server: u32,
    /// Sequence number, counted within the domain.
    pub sequence: u64,
}

/// Iterator over the positions of a list.
#[derive(Debug, Clone)]
pub struct Mariadb<'a> {
    text: Text<'a>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    AfterComma,
    Ended,
}

impl<'a> Mariadb<'a> {
    pub(super) fn new(text: &'a [u8]) -> Mariadb<'a> {
        Mariadb {
            text: Text::new(text),
            state: State::Start,
        }
    }

    fn position(&mut self) -> Result<Position, ParseError> {
        let domain = self.id()?;
        let server = self.id()?;
        let sequence = self.text.number(Expected::Sequence)?;
        self.text.skip_space();
        self.state = match self.text.take(b',') {
            true => State::AfterComma,
            false => State::Ended,
        };
        if self.state == State::Ended && !self.text.is_at_end() {
            return Err(self.text.fault(Expected::CommaOrEnd));
        }
        Ok(Position {
            domain,
            server,
            sequence,
        })
    }

    /// Reads an id and the dash after it.
    fn id(&mut self) -> Result<u32, ParseError> {
        let fault = self.text.fault(Expected::Id);
        let id = self.text.number(Expected::Id)?;
        let id = u32::try_from(id).map_err(|_| fault)?;
        match self.text.take(b'-') {
            true => Ok(id),
            false => Err(self.text.fault(Expected::Dash)),
        }
    }
}

impl Iterator for Mariadb<'_> {
    type Item = Result<Position, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.text.skip_space();
        match self.state {
            State::Ended => return None,
            State::Start if self.text.is_at_end() => return None,
            State::Start | State::AfterComma => {}
        }
        let read = self.position();
        if read.is_err() {
            self.state = State::Ended;
        }
        Some(read)
    }
}
