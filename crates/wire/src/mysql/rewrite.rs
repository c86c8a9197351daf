//! Rewrites packets between a server and a client that agreed on different capabilities: session
//! trackers, EOF forms, packet numbers and statement numbers.
//!
//! All other bytes remain unchanged. Both sides must have agreed on the same form of metadata
//! (MariaDB's extended metadata, cached metadata), which is not rewritten here.

use super::StatementId;
use super::backend::{self, Eof, OkPacket};
use super::build;
use super::flags::{Capabilities, Status};
use super::frame::{HEADER_LENGTH, Renumber};
use super::server_scanner::{End, Event};
use super::trackers::{Tracker, Trackers};

mod request;

pub use request::{execute, query};

/// Outcome of rewriting the packet of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// Forward the packet unchanged.
    Same,
    /// Forward the bytes written in its place, which may be none.
    Written,
    /// The packet is too long to be held and cannot be forwarded unchanged: the client connection
    /// must be closed.
    Impossible,
}

/// Rewriter of the replies of a server for a client with other capabilities.
#[derive(Debug, Clone)]
pub struct Transcoder {
    server: Capabilities,
    client: Capabilities,
    /// Number of packets of this reply that the client received beyond those the server sent,
    /// modulo 256.
    difference: u8,
    renumber: Renumber,
    status: Status,
    /// Buffer for the trackers that are kept; its memory is reused.
    kept: Vec<u8>,
}

impl Transcoder {
    /// Creates a transcoder between two sides with these capabilities.
    #[must_use]
    pub fn new(server: Capabilities, client: Capabilities) -> Self {
        Transcoder {
            server,
            client,
            difference: 0,
            renumber: Renumber::default(),
            status: Status::AUTOCOMMIT,
            kept: Vec::new(),
        }
    }

    /// Returns the difference between the packet numbers at the client and those of the server. The
    /// packets of a file that the client sends in the middle of a reply are too high by this
    /// number.
    #[must_use]
    pub fn difference(&self) -> u8 {
        self.difference
    }

    /// Renumbers irrelevant bytes that are about to be forwarded.
    #[inline]
    pub fn passed(&mut self, bytes: &mut [u8]) {
        if self.difference != 0 {
            self.renumber.apply(bytes, self.difference);
        }
    }

    /// Rewrites the packet of an event that is about to be forwarded. `keep` returns whether the
    /// client receives a tracker. A replacement is appended to `out`.
    pub fn event(
        &mut self,
        event: &Event<'_>,
        packet: &[u8],
        out: &mut Vec<u8>,
        keep: impl FnMut(&mut Tracker<'_>) -> bool,
    ) -> Rewrite {
        if let Some(status) = event.status() {
            self.status = status;
        }
        let rewrite = match self.rewrite(event, packet, out, keep) {
            Rewrite::Same => self.renumber(packet, out),
            rewrite => rewrite,
        };
        if ends_reply(event) {
            self.difference = 0;
        }
        rewrite
    }

    fn rewrite(
        &mut self,
        event: &Event<'_>,
        packet: &[u8],
        out: &mut Vec<u8>,
        keep: impl FnMut(&mut Tracker<'_>) -> bool,
    ) -> Rewrite {
        let sequence = packet.get(3).copied().unwrap_or_default();
        let sequence = sequence.wrapping_add(self.difference);
        let no_eof = self.client.has(Capabilities::DEPRECATE_EOF);
        match event {
            Event::Ok(ok) | Event::ResultEnd(End::Ok(ok)) => {
                let looks_like_eof = packet.get(HEADER_LENGTH) == Some(&backend::EOF);
                match (looks_like_eof, no_eof) {
                    (false, _) => self.ok(ok, out, keep, |out, ok, client| {
                        build::ok(out, sequence, ok, client);
                    }),
                    (true, true) => self.ok(ok, out, keep, |out, ok, client| {
                        build::ok_as_eof(out, sequence, ok, client);
                    }),
                    (true, false) => {
                        build::eof(out, sequence, eof_of(ok));
                        Rewrite::Written
                    }
                }
            }
            Event::Eof(eof) | Event::ResultEnd(End::Eof(eof)) if no_eof => {
                build::ok_as_eof(out, sequence, &ok_of(*eof), self.client);
                Rewrite::Written
            }
            Event::MetadataEnd { eof, sequence } => self.metadata_end(*eof, *sequence, out),
            _ => Rewrite::Same,
        }
    }

    fn metadata_end(&mut self, eof: Option<Eof>, sequence: u8, out: &mut Vec<u8>) -> Rewrite {
        match (eof, self.client.has(Capabilities::DEPRECATE_EOF)) {
            (Some(_), true) => self.difference = self.difference.wrapping_sub(1),
            (None, false) => {
                let status = self.status.without(STATUS_OF_ENDS);
                let eof = Eof {
                    warnings: 0,
                    status,
                };
                build::eof(out, sequence.wrapping_add(self.difference), eof);
                self.difference = self.difference.wrapping_add(1);
            }
            _ => return Rewrite::Same,
        }
        Rewrite::Written
    }

    fn ok(
        &mut self,
        ok: &OkPacket<'_>,
        out: &mut Vec<u8>,
        keep: impl FnMut(&mut Tracker<'_>) -> bool,
        write: impl FnOnce(&mut Vec<u8>, &OkPacket<'_>, Capabilities),
    ) -> Rewrite {
        let tracked = self.server.has(Capabilities::SESSION_TRACK);
        let wanted = self.client.has(Capabilities::SESSION_TRACK);
        if ok.is_cut {
            return match tracked == wanted {
                true => Rewrite::Same,
                false => Rewrite::Impossible,
            };
        }
        if tracked == wanted && ok.session_state.is_empty() {
            return Rewrite::Same;
        }
        self.kept.clear();
        let all = wanted && keep_trackers(ok.session_state, keep, &mut self.kept);
        if all && tracked {
            return Rewrite::Same;
        }
        let session_state = self.kept.as_slice();
        write(
            out,
            &OkPacket {
                session_state,
                ..*ok
            },
            self.client,
        );
        Rewrite::Written
    }

    /// Writes the packet with the number that the client expects.
    fn renumber(&mut self, packet: &[u8], out: &mut Vec<u8>) -> Rewrite {
        self.renumber = Renumber::default();
        if self.difference == 0 {
            return Rewrite::Same;
        }
        let begin = out.len();
        out.extend_from_slice(packet);
        self.renumber
            .apply(out.get_mut(begin..).unwrap_or_default(), self.difference);
        Rewrite::Written
    }
}

/// Status flags that belong to the end of a result and not to its beginning.
const STATUS_OF_ENDS: Status = Status(
    Status::MORE_RESULTS.0
        | Status::CURSOR_EXISTS.0
        | Status::LAST_ROW_SENT.0
        | Status::OUT_PARAMETERS.0
        | Status::SESSION_STATE_CHANGED.0,
);

/// Copies the trackers that `keep` selects. Returns whether that is all of them, unchanged.
fn keep_trackers(
    state: &[u8],
    mut keep: impl FnMut(&mut Tracker<'_>) -> bool,
    kept: &mut Vec<u8>,
) -> bool {
    let mut all = true;
    let mut trackers = Trackers::new(state);
    for mut tracker in trackers.by_ref() {
        let is_kept = keep(&mut tracker);
        all &= is_kept && !tracker.is_renamed;
        if is_kept {
            tracker.put(kept);
        }
    }
    all && !trackers.is_broken()
}

fn ends_reply(event: &Event<'_>) -> bool {
    match event {
        Event::Ok(_) | Event::Eof(_) | Event::ResultEnd(_) => !event
            .status()
            .is_some_and(|status| status.has(Status::MORE_RESULTS)),
        Event::Error(_) | Event::Complete | Event::Text => true,
        _ => false,
    }
}

fn eof_of(ok: &OkPacket<'_>) -> Eof {
    Eof {
        warnings: ok.warnings,
        status: ok.status,
    }
}

fn ok_of(eof: Eof) -> OkPacket<'static> {
    OkPacket {
        warnings: eof.warnings,
        status: eof.status,
        ..OkPacket::default()
    }
}

/// Replaces the statement number at the beginning of a packet: COM_STMT_EXECUTE, FETCH, CLOSE,
/// RESET, SEND_LONG_DATA and BULK_EXECUTE, and the first reply to COM_STMT_PREPARE. Returns whether
/// the packet is long enough.
#[must_use]
pub fn set_statement(packet: &mut [u8], statement: StatementId) -> bool {
    let place = packet.get_mut(HEADER_LENGTH.saturating_add(1)..);
    let place = place.and_then(|rest| rest.first_chunk_mut());
    place.is_some_and(|place| {
        *place = statement.0.to_le_bytes();
        true
    })
}

#[cfg(test)]
mod tests;
