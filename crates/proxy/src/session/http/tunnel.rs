//! Passes bytes in both directions after a change of the protocol, such as to WebSocket.
//!
//! The end of the client is passed on as such, and the server may still send. The end of the server
//! ends the connection of a client of HTTP/1.1, which closes after it (RFC 6455 §7.1.1). A client
//! of HTTP/2 may still send: the end of a side is END_STREAM, and a reset is RST_STREAM with CANCEL
//! (RFC 8441 §5).

use std::task::{Context, Poll};

use evenkeel_engine::relay::ByteDirection;

use super::{ExitReason, Session, Stage};
use crate::record::TerminationReason;

/// Progress of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// Both sides may send.
    Open,
    /// This side has ended, and the other one may send.
    HalfOpen { ended: Side },
    /// Both sides have ended, this one first. The last bytes are sent.
    Ended { first: Side },
}

/// Side of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Tunnel {
    /// Returns whether a side has ended.
    fn has_ended(self, side: Side) -> bool {
        match self {
            Self::Open => false,
            Self::HalfOpen { ended } => ended == side,
            Self::Ended { .. } => true,
        }
    }

    /// Returns the progress after the end of a side.
    fn after(self, side: Side) -> Self {
        match self {
            Self::Open => Self::HalfOpen { ended: side },
            Self::HalfOpen { ended } if ended != side => Self::Ended { first: ended },
            Self::HalfOpen { .. } | Self::Ended { .. } => self,
        }
    }

    /// Returns the reason for the end: the side that has ended first.
    fn reason(self) -> TerminationReason {
        match self {
            Self::HalfOpen {
                ended: Side::Client,
            }
            | Self::Ended {
                first: Side::Client,
            } => TerminationReason::ClientClosed,
            _ => TerminationReason::ServerClosed,
        }
    }
}

impl Session<'_> {
    /// Begins the tunnel after the response that has changed the protocol.
    pub(super) fn begin_tunnel(&mut self) -> Result<(), ExitReason> {
        self.stats().tunnels.add(1);
        self.stats().count_response(self.exchange.status);
        self.exchange.keeps_client = false;
        self.exchange.keeps_server = false;
        self.stage = Stage::Tunnel(Tunnel::Open);
        self.limit_tunnel(Tunnel::Open);
        let early = std::mem::take(&mut self.input);
        if let (Some(server), false) = (&mut self.exchange.server, early.is_empty()) {
            let sent = server.send_own(self.worker, early);
            sent.map_err(|error| ExitReason::ServerBroke(error.to_string()))?;
        }
        Ok(())
    }

    /// Passes the bytes that are there, then the end of a side.
    pub(super) fn step_tunnel(
        &mut self,
        progress: Tunnel,
        context: &mut Context<'_>,
    ) -> Result<bool, ExitReason> {
        let moved = match self.pass_to_client(progress, context)? {
            None => self.pass_to_server(progress, context)?,
            moved => moved,
        };
        let next = match moved {
            Some(Moved::Bytes(direction, length)) => {
                self.count(direction, length);
                progress
            }
            Some(Moved::End(Side::Server)) if self.client.serves_more() => {
                return Err(ExitReason::Done(progress.after(Side::Server).reason()));
            }
            Some(Moved::End(side)) => progress.after(side),
            None => return self.end_sides(progress, context),
        };
        self.stage = Stage::Tunnel(next);
        self.limit_tunnel(next);
        Ok(true)
    }

    fn pass_to_client(
        &mut self,
        progress: Tunnel,
        context: &mut Context<'_>,
    ) -> Result<Option<Moved>, ExitReason> {
        let Some(server) = &mut self.exchange.server else {
            return Err(ExitReason::ClientLeft);
        };
        if progress.has_ended(Side::Server) || !self.client.poll_sent(context).is_ready() {
            return Ok(None);
        }
        let Poll::Ready(received) = server.poll_chunk(self.worker, context) else {
            return Ok(None);
        };
        let chunk = received.map_err(|error| ExitReason::ServerBroke(error.to_string()))?;
        let Some(chunk) = chunk else {
            return Ok(Some(Moved::End(Side::Server)));
        };
        let length = chunk.bytes().len();
        let sent = self.client.send_chunk(self.worker, chunk);
        sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
        Ok(Some(Moved::Bytes(ByteDirection::ToClient, length)))
    }

    fn pass_to_server(
        &mut self,
        progress: Tunnel,
        context: &mut Context<'_>,
    ) -> Result<Option<Moved>, ExitReason> {
        let Some(server) = &mut self.exchange.server else {
            return Err(ExitReason::ClientLeft);
        };
        if progress.has_ended(Side::Client) || !server.poll_sent(context).is_ready() {
            return Ok(None);
        }
        let Poll::Ready(received) = self.client.poll_tunnel(self.worker, context) else {
            return Ok(None);
        };
        // The server has said all that it had to say: whatever ends the client ends the tunnel.
        let is_over = progress.has_ended(Side::Server);
        let chunk = match received {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(Some(Moved::End(Side::Client))),
            Err(_) if is_over => return Ok(Some(Moved::End(Side::Client))),
            Err(error) => return Err(ExitReason::ClientBroke(error.to_string())),
        };
        let length = chunk.bytes().len();
        match server.send_chunk(self.worker, chunk) {
            Ok(()) => Ok(Some(Moved::Bytes(ByteDirection::FromClient, length))),
            Err(_) if is_over => Ok(Some(Moved::End(Side::Client))),
            Err(error) => Err(ExitReason::ServerBroke(error.to_string())),
        }
    }

    /// Passes the end of each side that has ended on to the other one. The tunnel ends when both
    /// ends are on their way.
    fn end_sides(
        &mut self,
        progress: Tunnel,
        context: &mut Context<'_>,
    ) -> Result<bool, ExitReason> {
        let mut is_sent = true;
        if progress.has_ended(Side::Client)
            && let Some(server) = &mut self.exchange.server
        {
            // A failure is noticed when the server's bytes are received.
            is_sent &= server.poll_end(context).is_ready();
        }
        if progress.has_ended(Side::Server) {
            match self.client.poll_end(context) {
                Poll::Pending => is_sent = false,
                Poll::Ready(Err(error)) if matches!(progress, Tunnel::HalfOpen { .. }) => {
                    return Err(ExitReason::ClientBroke(error.to_string()));
                }
                Poll::Ready(_) => {}
            }
        }
        match progress {
            Tunnel::Ended { .. } if is_sent => Err(ExitReason::Closed(progress.reason())),
            _ => Ok(false),
        }
    }

    /// Sets the limit of a silence. After the end of one side, the other one has less time.
    fn limit_tunnel(&self, progress: Tunnel) {
        self.limit_step(|limits| match progress {
            Tunnel::HalfOpen { .. } | Tunnel::Ended { .. } if !limits.body_idle.is_zero() => {
                limits.body_idle
            }
            _ => limits.tunnel_idle,
        });
    }
}

/// Step of a tunnel.
enum Moved {
    /// This number of bytes.
    Bytes(ByteDirection, usize),
    /// The end of a side.
    End(Side),
}
