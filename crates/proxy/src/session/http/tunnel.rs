//! Passes bytes in both directions after a change of the protocol, such as to WebSocket.

use std::task::{Context, Poll};

use evenkeel_engine::relay::ByteDirection;

use super::{ExitReason, Session, Stage};
use crate::record::TerminationReason;

impl Session<'_> {
    /// Begins the tunnel after the response 101. `early` is what the server has sent after it.
    pub(super) fn begin_tunnel(&mut self) -> Result<(), ExitReason> {
        self.stats().tunnels.add(1);
        self.stats().count_response(101);
        self.exchange.keeps_client = false;
        self.exchange.keeps_server = false;
        self.stage = Stage::Tunnel;
        self.limit_step(|limits| limits.tunnel_idle);
        let early = std::mem::take(&mut self.input);
        if let (Some(server), false) = (&mut self.exchange.server, early.is_empty()) {
            let sent = server.send_own(self.worker, early);
            sent.map_err(|error| ExitReason::ServerBroke(error.to_string()))?;
        }
        Ok(())
    }

    /// Passes the bytes that are there. The end of one side ends the tunnel: a peer that speaks
    /// WebSocket closes after a Close frame of both (RFC 6455 §7.1.1).
    pub(super) fn step_tunnel(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let worker = self.worker;
        let Some(server) = &mut self.exchange.server else {
            return Err(ExitReason::ClientLeft);
        };
        let mut moved = None;
        if self.client.poll_sent(context).is_ready()
            && let Poll::Ready(received) = server.poll_chunk(worker, context)
        {
            let chunk = received.map_err(|error| ExitReason::ServerBroke(error.to_string()))?;
            let Some(chunk) = chunk else {
                return Err(ExitReason::Done(TerminationReason::ServerClosed));
            };
            moved = Some((ByteDirection::ToClient, chunk.bytes().len()));
            let sent = self.client.send_chunk(worker, chunk);
            sent.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
        } else if server.poll_sent(context).is_ready()
            && let Poll::Ready(received) = self.client.poll_chunk(worker, context)
        {
            let chunk = received.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
            let Some(chunk) = chunk else {
                return Err(ExitReason::Done(TerminationReason::ClientClosed));
            };
            moved = Some((ByteDirection::FromClient, chunk.bytes().len()));
            let sent = server.send_chunk(worker, chunk);
            sent.map_err(|error| ExitReason::ServerBroke(error.to_string()))?;
        }
        let Some((direction, length)) = moved else {
            return Ok(false);
        };
        self.count(direction, length);
        self.limit_step(|limits| limits.tunnel_idle);
        Ok(true)
    }
}
