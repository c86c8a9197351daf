//! Defines how the login of a database client fails.

use std::io;

use super::error_reply::{ErrorReply, ReplyCode};

/// Reason why a login ended without a session.
pub(super) enum LoginError<C: ReplyCode> {
    /// The client disconnected, its connection failed, or it only sent a cancel request.
    Disconnected,
    /// The client receives this error.
    Rejected(ErrorReply<C>),
}

impl<C: ReplyCode> From<ErrorReply<C>> for LoginError<C> {
    fn from(error_reply: ErrorReply<C>) -> Self {
        LoginError::Rejected(error_reply)
    }
}

impl<C: ReplyCode> From<io::Error> for LoginError<C> {
    fn from(_: io::Error) -> Self {
        LoginError::Disconnected
    }
}
