//! Our client, which sends the requests of plans over a pipe.

use std::collections::VecDeque;

use evenkeel_wire::http2::{Limits, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::side::{Role, Seen, Side};

struct Client<'a> {
    side: Side,
    plans: &'a [Plan],
    /// Plans that are not begun.
    waiting: VecDeque<usize>,
    chance: Chance,
}

/// Runs all plans to their end, says so, and waits until the server closes.
pub(crate) async fn run(
    pipe: DuplexStream,
    plans: &[Plan],
    mut chance: Chance,
    done: oneshot::Sender<()>,
) -> Result<Seen, String> {
    let limits = Limits {
        streams_max: chance.size(1, 20) as u32,
        head_bytes_max: 100_000,
        stream_window: chance.size(65_535, 300_000) as u32,
        connection_window: chance.size(65_535, 300_000) as u32,
        ..Limits::default()
    };
    let mut client = Client {
        side: Side::new(Role::Client, limits),
        plans,
        waiting: (0..plans.len()).collect(),
        chance,
    };
    let (mut from_server, mut to_server) = tokio::io::split(pipe);
    let mut part = vec![0; 40_000];
    let (mut now_ms, mut received) = (0, 0);
    while client.is_busy() {
        // SETTINGS of 27 bytes have the limit of streams: the server takes the trailers of a stream
        // that it has refused for a request.
        let goes_on = received >= 27 && client.progress();
        let most = client.chance.size(1, part.len());
        let out = std::mem::take(&mut client.side.out);
        tokio::select! {
            biased;
            count = from_server.read(&mut part[..most]) => {
                client.side.out = out;
                let count = count.map_err(|error| error.to_string())?;
                if count == 0 {
                    return Err("the server has closed".to_owned());
                }
                client.side.receive(&part[..count], now_ms, plans);
                received += count;
                now_ms += 20;
            }
            count = to_server.write(&out), if !out.is_empty() => {
                let count = count.map_err(|error| error.to_string())?;
                client.side.out = out[count..].to_vec();
            }
            () = tokio::task::yield_now(), if goes_on => client.side.out = out,
        }
    }
    let out = std::mem::take(&mut client.side.out);
    to_server
        .write_all(&out)
        .await
        .map_err(|error| error.to_string())?;
    client.side.assert_rested();
    let _ = done.send(());
    let mut late = Vec::new();
    let _ = from_server.read_to_end(&mut late).await;
    client.side.receive(&late, now_ms, plans);
    Ok(client.side.seen)
}

impl Client<'_> {
    fn is_busy(&self) -> bool {
        !self.side.exchanges.is_empty() || !self.waiting.is_empty() || !self.side.again.is_empty()
    }

    /// Does a part of what can be done. Returns whether there was anything.
    fn progress(&mut self) -> bool {
        self.waiting.extend(self.side.again.drain(..));
        let mut goes_on = false;
        if let Some(&plan) = self.waiting.front()
            && self.side.open(plan, self.plans)
        {
            self.waiting.pop_front();
            goes_on = true;
        }
        let streams: Vec<StreamId> = self.side.exchanges.keys().copied().collect();
        for stream in streams {
            let most = self.chance.size(1, 40_000);
            let (side, plans) = (&mut self.side, self.plans);
            goes_on |= match self.chance.one_in(2) {
                true => side.pump(stream, most, plans) || side.release(stream, most),
                false => side.release(stream, most) || side.pump(stream, most, plans),
            };
        }
        goes_on
    }
}
