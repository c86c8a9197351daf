//! What must change on the way: hidden session trackers, EOF forms, numbers of packets and
//! statements.
//!
//! Everything else goes as it came. The two sides must have agreed on the same form of metadata
//! (MariaDB's extended metadata, cached metadata): that is not rewritten here.

use super::StatementId;
use super::backend::{self, Eof, OkPacket};
use super::build;
use super::flags::{Capabilities, Status};
use super::frame::{HEADER_LENGTH, Renumber};
use super::server_scanner::{End, Event};
use super::trackers::{Tracker, Trackers};

mod request;

pub use request::{execute, query};

/// What to do with the bytes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewrite {
    /// Pass them on as they are.
    Same,
    /// Pass on what was written instead, which may be nothing.
    Written,
    /// It is too long to be held and cannot go as it is: the connection to the client must end.
    Impossible,
}

/// Follows replies from a server that agreed on some things to a client that agreed on others.
#[derive(Debug, Clone)]
pub struct Transcoder {
    server: Capabilities,
    client: Capabilities,
    /// How many packets the client has got more than the server sent, of this reply.
    difference: u8,
    renumber: Renumber,
    status: Status,
    /// The trackers that are kept; its memory is used again.
    kept: Vec<u8>,
}

impl Transcoder {
    /// Between two sides.
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

    /// What the numbers of packets that the client sees exceed the server's by. The packets of a
    /// file that the client sends in the middle of a reply have as much too much.
    #[must_use]
    pub fn difference(&self) -> u8 {
        self.difference
    }

    /// Bytes of no interest are about to be passed on.
    #[inline]
    pub fn passed(&mut self, bytes: &mut [u8]) {
        if self.difference != 0 {
            self.renumber.apply(bytes, self.difference);
        }
    }

    /// The packet of an event is about to be passed on. `keep` tells which trackers the client is
    /// to see. What is written instead goes to `out`.
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

    /// The same packet with the number that the client is to see.
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

/// Flags that belong to the end of a result and say nothing about its beginning.
const STATUS_OF_ENDS: Status = Status(
    Status::MORE_RESULTS.0
        | Status::CURSOR_EXISTS.0
        | Status::LAST_ROW_SENT.0
        | Status::OUT_PARAMETERS.0
        | Status::SESSION_STATE_CHANGED.0,
);

/// Copies the trackers that are wanted; whether that is all of them.
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

/// Puts another number into a packet that begins with a statement's: COM_STMT_EXECUTE, FETCH,
/// CLOSE, RESET, SEND_LONG_DATA and BULK_EXECUTE, and the first answer to COM_STMT_PREPARE. Whether
/// it is long enough.
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
