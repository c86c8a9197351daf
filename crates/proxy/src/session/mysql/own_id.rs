//! Puts values that the client knows in place of CONNECTION_ID() and ROW_COUNT() in its texts.

use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::frame::{HEADER_LENGTH, Header};
use evenkeel_wire::mysql::frontend::{self, Request};

use super::Session;
use super::commands::asks_connection_id_alone;
use evenkeel_sql::mysql::{ClientValues, replace_client_values};

/// Maximum length of a text that is searched.
const TEXT_LENGTH_MAX: usize = 64 * 1024;

impl Session<'_> {
    /// Returns the input with the values in the text of its first packet. `None`: the packet does
    /// not call the functions, or is answered without a server.
    pub(super) fn with_own_values(&self, header: Header, bytes: &[u8]) -> Option<Vec<u8>> {
        if header.frame_length() > TEXT_LENGTH_MAX {
            return None;
        }
        let payload = bytes.get(HEADER_LENGTH..header.frame_length())?;
        let (text, row_count) = match frontend::request(payload, self.handshake.agreed).ok()? {
            Request::Query { text, .. } if !asks_connection_id_alone(text) => {
                (text, self.row_count)
            }
            // Its executions return later counts.
            Request::Prepare { text } => (text, None),
            _ => return None,
        };
        let values = ClientValues {
            connection_id: self.handshake.id as u32,
            row_count,
        };
        let replaced = replace_client_values(text, self.state.modes(), values)?;
        let before = payload.get(..payload.len() - text.len())?;
        let mut out = self.core.worker.take_spare();
        build::packet(&mut out, header.sequence, |out| {
            out.extend_from_slice(before);
            out.extend_from_slice(&replaced);
        });
        out.extend_from_slice(bytes.get(header.frame_length()..)?);
        Some(out)
    }
}
