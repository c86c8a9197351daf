//! Describes one step of a scan of a server's bytes.

/// Result of one step. `E`: relevant message; `F`: violation of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanStep<E, F> {
    /// `passed` irrelevant bytes, then `length` bytes of this message. If the message is longer
    /// than its held part, the remainder counts as passed in the next step.
    Event {
        /// Number of bytes before the message, such as rows.
        passed: usize,
        /// The message.
        event: E,
        /// Length of the message or of its held beginning; 0 if the event is no message.
        length: usize,
    },
    /// No further relevant message, or not all of it: `passed` bytes may be forwarded, then `need`
    /// bytes are required.
    Wait {
        /// Number of irrelevant bytes.
        passed: usize,
        /// Number of bytes that must follow the passed ones before another attempt can succeed.
        need: usize,
    },
    /// Protocol violation of the server.
    Invalid(F),
}

/// Number of irrelevant bytes of the current message that are still to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Skip(pub(crate) usize);

impl Skip {
    /// Skips bytes after the `passed` ones. Returns the bytes that follow, and counts the skipped
    /// ones as passed.
    #[inline]
    pub(crate) fn skip<'a>(&mut self, bytes: &'a [u8], passed: &mut usize) -> &'a [u8] {
        let rest = bytes.get(*passed..).unwrap_or_default();
        let skipped = self.0.min(rest.len());
        self.0 = self.0.saturating_sub(skipped);
        *passed = passed.saturating_add(skipped);
        rest.get(skipped..).unwrap_or_default()
    }

    /// Returns whether nothing is left to skip.
    #[inline]
    pub(crate) fn is_over(self) -> bool {
        self.0 == 0
    }
}
