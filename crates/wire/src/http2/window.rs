//! Windows of flow control, of a stream or of the connection (RFC 9113 §5.2, §6.9).

/// The largest window (RFC 9113 §6.9.1).
pub(super) const WINDOW_MAX: u32 = 0x7fff_ffff;

/// Window of each stream and of the connection until SETTINGS or WINDOW_UPDATE change it.
pub(super) const WINDOW_INITIAL: u32 = 65_535;

/// Error: the window would be larger than [`WINDOW_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Bytes of DATA that may be sent. It is negative after the peer made its initial window smaller
/// (RFC 9113 §6.9.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendWindow(i64);

impl SendWindow {
    pub(super) fn new(bytes: u32) -> Self {
        SendWindow(i64::from(bytes))
    }

    /// Returns how many bytes may be sent.
    #[inline]
    pub(super) fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Counts sent bytes, which are no more than [`SendWindow::room`].
    #[inline]
    pub(super) fn take(&mut self, bytes: u32) {
        self.0 = self.0.saturating_sub(i64::from(bytes));
    }

    /// Adds the change of the initial window, or the increment of a WINDOW_UPDATE.
    pub(super) fn shift(&mut self, by: i64) -> Result<(), TooLarge> {
        let shifted = self.0.saturating_add(by);
        if shifted > i64::from(WINDOW_MAX) {
            return Err(TooLarge);
        }
        self.0 = shifted;
        Ok(())
    }
}

/// Bytes of DATA that the peer may send, and those that it has sent.
///
/// The sum of `left`, `freed` and the bytes that the caller holds is `size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    size: u32,
    left: u32,
    /// Bytes that were received and released, and that no WINDOW_UPDATE has announced.
    freed: u32,
}

impl ReceiveWindow {
    pub(super) fn new(size: u32) -> Self {
        ReceiveWindow {
            size,
            left: size,
            freed: 0,
        }
    }

    /// Counts a received frame. Returns false if the peer was not allowed to send it.
    #[inline]
    #[must_use]
    pub(super) fn receive(&mut self, bytes: u32) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Counts bytes that the caller no longer holds. Returns the increment that is to be sent: that
    /// is when half of the window was used, so that a WINDOW_UPDATE stands for many frames.
    #[inline]
    #[must_use]
    pub(super) fn release(&mut self, bytes: u32) -> Option<u32> {
        let held = self
            .size
            .saturating_sub(self.left)
            .saturating_sub(self.freed);
        self.freed = self.freed.saturating_add(bytes.min(held));
        if self.freed < self.size / 2 {
            return None;
        }
        self.left = self.left.saturating_add(self.freed);
        Some(std::mem::take(&mut self.freed))
    }
}
