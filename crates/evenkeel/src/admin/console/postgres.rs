//! The console for PostgreSQL's clients.

mod login;
mod session;

pub(super) use session::converse;

use evenkeel_wire::postgres::frame::{self, Frame};
use evenkeel_wire::postgres::{Parsed, ProtocolError};

use super::stream::{MESSAGE_LENGTH_MAX, Stream};

type End = super::stream::End<ProtocolError>;

/// Drivers take what is older for a server that lacks what they need.
pub(super) const VERSION: &str = concat!("18.0 (Evenkeel ", env!("CARGO_PKG_VERSION"), ")");

/// The next message: its tag and what follows the header.
async fn message(stream: &mut Stream) -> Result<(u8, Vec<u8>), End> {
    let parse = |bytes: &[u8]| {
        let whole = parsed(frame::frame(bytes, MESSAGE_LENGTH_MAX))?;
        Ok(whole.map(|(Frame { tag, body }, length)| ((tag, body.to_vec()), length)))
    };
    stream.take(parse).await
}

fn parsed<T>(parsed: Parsed<T>) -> Result<Option<(T, usize)>, ProtocolError> {
    match parsed {
        Parsed::Frame(thing, length) => Ok(Some((thing, length))),
        Parsed::Incomplete { .. } => Ok(None),
        Parsed::Invalid(fault) => Err(fault),
    }
}
