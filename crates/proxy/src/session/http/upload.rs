//! Passes the body of a request on to the server.

use std::task::{Context, Poll};

use evenkeel_engine::relay::ByteDirection;
use evenkeel_engine::socket::Chunk;
use evenkeel_wire::http::Fault;

use super::exchange::{Recoded, Upload};
use super::{ExitReason, Session, Stage};
use crate::session::http::bulk::is_bulk;

/// Reason for which the body of a request is refused.
pub(super) enum BodyFault {
    /// Malformed framing.
    Malformed(Fault),
    /// More bytes than this limit.
    TooLong(u64),
}

impl Session<'_> {
    /// Receives more of the body, if the server takes more.
    pub(super) fn step_upload(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let Some(server) = &mut self.exchange.server else {
            return Ok(false);
        };
        match server.poll_sent(context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) => {}
            // The response may have been received already, and the end of the connection is noticed
            // there.
            Poll::Ready(Err(_)) => return self.watch_client(context),
        }
        if !self.input.is_empty() {
            let held = std::mem::take(&mut self.input);
            let used = self.forward_body(&held)?;
            self.input = held;
            self.input.drain(..used);
            return Ok(true);
        }
        if matches!(self.exchange.upload, Upload::Unframed(_)) && self.client.has_ended_body() {
            self.end_unframed();
            return Ok(true);
        }
        let chunk = match self.client.poll_chunk(self.worker, context) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(Some(chunk))) => chunk,
            Poll::Ready(Ok(None)) => return Err(ExitReason::ClientLeft),
            Poll::Ready(Err(error)) => return Err(ExitReason::ClientBroke(error.to_string())),
        };
        let length = chunk.bytes().len();
        self.count(ByteDirection::FromClient, length);
        self.limit_upload();
        if let Upload::Length(left) = &mut self.exchange.upload
            && length as u64 <= *left
        {
            let is_bulk = is_bulk(length, *left) && self.exchange.kept.is_gone();
            if is_bulk {
                return self.forward_bulk(chunk);
            }
            *left -= length as u64;
            self.exchange.body_bytes += length as u64;
            if *left == 0 {
                self.end_upload();
            }
            let length_max = self.kept_length_max();
            self.exchange.kept.add(chunk.bytes(), length_max);
            let server = self.exchange.server.as_mut();
            let sent = server.map(|server| server.send_chunk(self.worker, chunk));
            // A failed send is noticed when the response is received.
            drop(sent);
            return Ok(true);
        }
        let used = self.forward_body(chunk.bytes())?;
        let rest = chunk.bytes().get(used..).unwrap_or_default().to_vec();
        drop(chunk);
        self.input.extend_from_slice(&rest);
        Ok(true)
    }

    /// Sends the chunk and what has arrived after it, of a long body of which no copy is kept.
    fn forward_bulk(&mut self, chunk: Chunk<'_>) -> Result<bool, ExitReason> {
        let Upload::Length(left) = &mut self.exchange.upload else {
            return Ok(true);
        };
        let first = chunk.bytes().len();
        let bulk = self.client.receive_bulk(self.worker, chunk, *left);
        let bulk = bulk.map_err(|error| ExitReason::ClientBroke(error.to_string()))?;
        *left -= bulk.len() as u64;
        self.exchange.body_bytes += bulk.len() as u64;
        if *left == 0 {
            self.end_upload();
        }
        self.count(ByteDirection::FromClient, bulk.len() - first);
        if let Some(server) = &mut self.exchange.server {
            // A failed send is noticed when the response is received.
            drop(server.send_own(self.worker, bulk));
        }
        Ok(true)
    }

    /// Sends the part of the bytes that belongs to the body. Returns its length.
    fn forward_body(&mut self, bytes: &[u8]) -> Result<usize, ExitReason> {
        let used = match self.take_body(bytes) {
            Ok(used) => used,
            Err(fault) => return self.refuse_rest(fault).map(|()| bytes.len()),
        };
        let out = std::mem::take(&mut self.exchange.outgoing);
        self.exchange.kept.add(&out, self.kept_length_max());
        if let Some(server) = &mut self.exchange.server {
            // A failed send is noticed when the response is received.
            drop(server.send_own(self.worker, out));
        }
        if self.exchange.upload.is_done() {
            self.end_upload();
        }
        Ok(used)
    }

    /// Appends the part of the bytes that belongs to the body to the bytes for the server. Returns
    /// its length.
    pub(super) fn take_body(&mut self, bytes: &[u8]) -> Result<usize, BodyFault> {
        let length_max = self.body_bytes_max();
        if self.exchange.outgoing.capacity() == 0 {
            self.exchange.outgoing = self.worker.take_spare();
        }
        let exchange = &mut self.exchange;
        match &mut exchange.upload {
            Upload::Done => Ok(0),
            Upload::Length(left) => {
                let used = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                exchange.outgoing.extend_from_slice(&bytes[..used]);
                *left -= used as u64;
                exchange.body_bytes += used as u64;
                if *left == 0 {
                    exchange.upload = Upload::Done;
                }
                Ok(used)
            }
            Upload::Chunked(recoding) => {
                let out = &mut exchange.outgoing;
                let recoded = recoding.recode(bytes, &mut exchange.body_bytes, out);
                if exchange.body_bytes > length_max {
                    return Err(BodyFault::TooLong(length_max));
                }
                match recoded.map_err(BodyFault::Malformed)? {
                    Recoded::Partial => Ok(bytes.len()),
                    Recoded::Complete(used) => {
                        exchange.upload = Upload::Done;
                        Ok(used)
                    }
                }
            }
            Upload::Unframed(encoder) => {
                exchange.body_bytes += bytes.len() as u64;
                if exchange.body_bytes > length_max {
                    return Err(BodyFault::TooLong(length_max));
                }
                encoder.whole(bytes, &mut exchange.outgoing);
                Ok(bytes.len())
            }
        }
    }

    /// Sends the end of a body whose end comes apart from its bytes, with its trailers.
    fn end_unframed(&mut self) {
        if let Upload::Unframed(encoder) = &mut self.exchange.upload {
            let mut out = self.worker.take_spare();
            let finished = encoder.finish(self.client.request_trailers(), &mut out);
            debug_assert!(finished, "a body ends once");
            self.exchange.kept.add(&out, self.kept_length_max());
            if let Some(server) = &mut self.exchange.server {
                // A failed send is noticed when the response is received.
                drop(server.send_own(self.worker, out));
            }
        }
        self.end_upload();
    }

    fn end_upload(&mut self) {
        self.exchange.upload = Upload::Done;
        if matches!(self.stage, Stage::Response) {
            self.limit_step(|limits| limits.first_byte);
        }
    }
}
