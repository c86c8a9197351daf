//! Time limits of the budget, which the caller has checked by time.

use super::{Connection, Event};
use crate::http2::error::{ConnectionError, ErrorCode};
use crate::http2::stream::Waiting;

impl Connection {
    /// Checks the time limits: a field block must be complete, and a client must take data that
    /// wait for it. A shut window of a stream resets the stream, and the call is repeated until
    /// there is no event; a shut window of the connection ends the connection.
    pub fn check(
        &mut self,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if let Some(error) = self.failed() {
            return Err(error);
        }
        self.now_ms = now_ms;
        let checked = self.check_block().and_then(|()| self.check_windows(out));
        checked.inspect_err(|error| self.fail_with(*error, out))
    }

    /// Returns when [`Connection::check`] may find something, in the time that its `now_ms` counts.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        let limits = &self.limits.budget;
        let block = self.block.as_ref();
        let block = block.map(|block| block.since_ms().saturating_add(limits.block_ms));
        let waiting = self
            .streams
            .iter()
            .filter_map(|stream| match stream.waiting {
                Waiting::Since { ms } => Some(ms.saturating_add(limits.shut_window_ms)),
                Waiting::Unseen => Some(self.now_ms.saturating_add(limits.shut_window_ms)),
                Waiting::No => None,
            });
        block.into_iter().chain(waiting).min()
    }

    pub(super) fn check_block(&self) -> Result<(), ConnectionError> {
        let limit_ms = self.limits.budget.block_ms;
        match &self.block {
            Some(block) if self.now_ms.saturating_sub(block.since_ms()) >= limit_ms => {
                Err(ConnectionError::too_much("a field block took too long"))
            }
            _ => Ok(()),
        }
    }

    fn check_windows(&mut self, out: &mut Vec<u8>) -> Result<Option<Event>, ConnectionError> {
        let (now_ms, limit_ms) = (self.now_ms, self.limits.budget.shut_window_ms);
        let mut late = None;
        for stream in self.streams.iter_mut() {
            match stream.waiting {
                Waiting::Unseen => stream.waiting = Waiting::Since { ms: now_ms },
                Waiting::Since { ms } if now_ms.saturating_sub(ms) >= limit_ms => {
                    late = late.or(Some(stream.id));
                }
                Waiting::Since { .. } | Waiting::No => {}
            }
        }
        let Some(stream) = late else {
            return Ok(None);
        };
        if self.send.room() == 0 {
            let why = "data waited too long for the window of the connection";
            return Err(ConnectionError::too_much(why));
        }
        let why = "data waited too long for the window of the stream";
        let code = ErrorCode::EnhanceYourCalm;
        self.stream_fault(stream, code, why, out).map(Some)
    }
}
