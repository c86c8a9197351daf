//! Serves the console to PostgreSQL clients.

mod login;
mod session;

pub(super) use session::serve_session;

use evenkeel_wire::postgres::frame::{self, Frame};
use evenkeel_wire::postgres::{Parsed, ProtocolError};

use super::stream::{MESSAGE_LENGTH_MAX, Stream};

type End = super::stream::End<ProtocolError>;

/// Version that clients receive. Drivers assume that an older server lacks features which they
/// need.
pub(super) const VERSION: &str = concat!("18.0 (Evenkeel ", env!("CARGO_PKG_VERSION"), ")");

/// Reads the next message: its tag, and its body.
async fn message(stream: &mut Stream) -> Result<(u8, Vec<u8>), End> {
    let parse = |bytes: &[u8]| {
        let whole = parsed(frame::frame(bytes, MESSAGE_LENGTH_MAX))?;
        Ok(whole.map(|(Frame { tag, body }, length)| ((tag, body.to_vec()), length)))
    };
    stream.take(parse).await
}

fn parsed<T>(parsed: Parsed<T>) -> Result<Option<(T, usize)>, ProtocolError> {
    match parsed {
        Parsed::Frame(value, length) => Ok(Some((value, length))),
        Parsed::Incomplete { .. } => Ok(None),
        Parsed::Invalid(fault) => Err(fault),
    }
}
