//! Serves the console to MySQL and MariaDB clients.

mod answer;
mod login;
mod session;

pub(super) use session::serve_session;

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{self, Frame};
use evenkeel_wire::mysql::{Parsed, ProtocolError};

use super::stream::{MESSAGE_LENGTH_MAX, Stream};

type End = super::stream::End<ProtocolError>;

/// Version in the greeting. Drivers assume that an older server lacks features which they need.
pub(super) const VERSION: &str = concat!("8.4.0-Evenkeel-", env!("CARGO_PKG_VERSION"));

/// Value of `version_comment`, which clients show after they connect.
pub(super) const VERSION_COMMENT: &str = concat!("Evenkeel ", env!("CARGO_PKG_VERSION"));

/// Capabilities that the console offers.
const OFFERED: Capabilities = Capabilities::PROTOCOL_41
    .with(Capabilities::LONG_PASSWORD)
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC)
    .with(Capabilities::CONNECT_WITH_DB)
    .with(Capabilities::CONNECT_ATTRS)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::DEPRECATE_EOF);

/// Reads the payload of the next packet, which must have this sequence number.
async fn packet(stream: &mut Stream, sequence: u8) -> Result<Vec<u8>, End> {
    let parse = |bytes: &[u8]| match frame::frame(bytes, MESSAGE_LENGTH_MAX) {
        Parsed::Frame(frame, _) if frame.sequence != sequence => {
            Err(ProtocolError::Sequence(frame.sequence))
        }
        Parsed::Frame(Frame { payload, .. }, length) => Ok(Some((payload.to_vec(), length))),
        Parsed::Incomplete { .. } => Ok(None),
        Parsed::Invalid(fault) => Err(fault),
    };
    stream.take(parse).await
}
