//! Draws what a client sends after the preface: most of its frames are right.

use evenkeel_wire::http2::hpack::{Encoder, Indexing};

use crate::chance::Chance;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 0x20;

struct Client<'a> {
    chance: &'a mut Chance,
    encoder: Encoder,
    frames: Vec<Vec<u8>>,
    next: u32,
    /// Streams whose request goes on, and the bytes that it owes.
    sending: Vec<(u32, Option<usize>)>,
    /// Streams whose request ended.
    waiting: Vec<u32>,
}

/// Returns the bytes of a client. Damage changes frames in any way.
pub(crate) fn draw(chance: &mut Chance, is_damaged: bool) -> Vec<u8> {
    let mut client = Client {
        chance,
        encoder: Encoder::new(),
        frames: Vec::new(),
        next: 1,
        sending: Vec::new(),
        waiting: Vec::new(),
    };
    client.settings();
    for _ in 0..client.chance.below(12) {
        client.draw_frame();
    }
    let Client {
        chance, mut frames, ..
    } = client;
    if is_damaged {
        for _ in 0..=chance.below(2) {
            damage(&mut frames, chance);
        }
    }
    let mut bytes = frames.concat();
    if chance.one_in(8) {
        bytes.truncate(chance.below(bytes.len() + 1));
    }
    bytes
}

fn damage(frames: &mut Vec<Vec<u8>>, chance: &mut Chance) {
    let at = chance.below(frames.len());
    let other = chance.below(frames.len());
    match chance.below(8) {
        0 => frames.swap(at, other),
        1 => drop(frames.remove(at)),
        2 => frames.insert(at, frames[other].clone()),
        3 => frames[at][4] ^= 1 << chance.below(8),
        4 => frames[at][3] = chance.below(11) as u8,
        5 => frames[at][8] = chance.below(12) as u8,
        // Lengths that are wrong move the begin of the next frame.
        6 => {
            frames[at][2] = frames[at][2]
                .wrapping_add(chance.below(5) as u8)
                .wrapping_sub(2)
        }
        _ => {
            let byte = chance.below(frames[at].len());
            frames[at][byte] = chance.below(256) as u8;
        }
    }
    if frames.is_empty() {
        frames.push(frame(PING, 0, 0, &[0; 8]));
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

impl Client<'_> {
    fn push(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.frames.push(frame(kind, flags, stream, payload));
    }

    fn settings(&mut self) {
        let mut payload = Vec::new();
        for _ in 0..self.chance.below(3) {
            let (name, value) = match self.chance.below(6) {
                0 => (1, self.chance.size(0, 70_000)),
                1 => (2, self.chance.below(2)),
                2 => (3, self.chance.below(200)),
                3 => (4, self.chance.size(0, 0x7fff_ffff)),
                4 => (5, self.chance.size(16_384, 0xff_ffff)),
                _ => (0x33, self.chance.below(1_000)),
            };
            payload.extend((name as u16).to_be_bytes());
            payload.extend((value as u32).to_be_bytes());
        }
        self.push(SETTINGS, 0, 0, &payload);
    }

    fn draw_frame(&mut self) {
        match self.chance.below(16) {
            0..=3 => self.request(),
            4..=7 => self.data(),
            8 => self.trailers(),
            9 | 10 => {
                let stream = self.any_stream();
                let increment = self.chance.size(1, 0x3fff_ffff) as u32;
                self.push(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
            }
            11 => self.reset(),
            12 => self.settings(),
            13 => self.push(PING, 0, 0, b"12345678"),
            14 => {
                let stream = 2 * self.chance.below(10) as u32 + 1;
                self.push(PRIORITY, 0, stream, &[0, 0, 0, 0, 7]);
            }
            _ => match self.chance.one_in(10) {
                true => self.push(GOAWAY, 0, 0, &[0; 11]),
                false => self.push(0x42, 0x0f, 1, b"unknown"),
            },
        }
    }

    fn any_stream(&mut self) -> u32 {
        let streams = self.sending.iter().map(|(stream, _)| *stream);
        let mut streams: Vec<_> = streams.chain(self.waiting.iter().copied()).collect();
        streams.push(0);
        streams[self.chance.below(streams.len())]
    }

    fn request(&mut self) {
        let stream = self.next;
        self.next += if self.chance.one_in(10) { 4 } else { 2 };
        // An extended CONNECT (RFC 8441) opens a tunnel.
        let is_connect = self.chance.one_in(8);
        let has_body = is_connect || self.chance.one_in(2);
        let has_length = has_body && !is_connect && self.chance.one_in(2);
        let length = has_length.then(|| self.chance.below(400));
        let text = length.map(|length| length.to_string());
        let mut fields: Vec<(&[u8], &[u8])> = vec![
            (
                b":method",
                match (is_connect, has_body) {
                    (true, _) => b"CONNECT",
                    (false, true) => b"POST",
                    (false, false) => b"GET",
                },
            ),
            (b":scheme", b"https"),
            (b":authority", b"shop.example"),
            (
                b":path",
                [&b"/"[..], b"/a?b", b"/very/long/path"][self.chance.below(3)],
            ),
        ];
        if is_connect {
            fields.push((b":protocol", b"websocket"));
        }
        let more: [(&[u8], &[u8]); 4] = [
            (b"user-agent", b"test"),
            (b"x-a", b""),
            (b"cookie", b"a=b"),
            (b"te", b"trailers"),
        ];
        fields.extend(more.iter().take(self.chance.below(5)));
        if let Some(text) = &text {
            fields.push((b"content-length", text.as_bytes()));
        }
        self.field_block(stream, &fields, !has_body);
        match has_body {
            true => self.sending.push((stream, length)),
            false => self.waiting.push(stream),
        }
    }

    /// Sends a field block in one or more frames.
    fn field_block(&mut self, stream: u32, fields: &[(&[u8], &[u8])], end: bool) {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            let indexing = match self.chance.below(3) {
                0 => Indexing::Incremental,
                1 => Indexing::Without,
                _ => Indexing::Never,
            };
            self.encoder.field(&mut block, name, value, indexing);
        }
        let mut flags = if end { END_STREAM } else { 0 };
        let mut payload = Vec::new();
        let padding = self.chance.below(4);
        if padding == 0 {
            flags |= PADDED;
            payload.push(3);
        }
        if self.chance.one_in(4) {
            flags |= PRIORITIZED;
            payload.extend([0, 0, 0, 0, 16]);
        }
        let parts = 1 + self.chance.below(3) * self.chance.below(2);
        let length = block.len().div_ceil(parts);
        let mut chunks = block.chunks(length).enumerate().peekable();
        while let Some((number, chunk)) = chunks.next() {
            let last = if chunks.peek().is_none() {
                END_HEADERS
            } else {
                0
            };
            if number > 0 {
                self.push(CONTINUATION, last, stream, chunk);
                continue;
            }
            payload.extend(chunk);
            payload.extend(vec![0; if padding == 0 { 3 } else { 0 }]);
            self.push(HEADERS, flags | last, stream, &payload);
            payload.clear();
        }
    }

    fn data(&mut self) {
        if self.sending.is_empty() {
            return self.request();
        }
        let at = self.chance.below(self.sending.len());
        let (stream, owed) = self.sending[at];
        let most = owed.unwrap_or(400);
        let length = match self.chance.one_in(4) {
            true => most,
            false => self.chance.below(most + 1),
        };
        let ends = match owed {
            Some(owed) => owed == length,
            None => self.chance.one_in(4),
        };
        let bytes = self.chance.bytes(length);
        let flags = if ends { END_STREAM } else { 0 };
        match self.chance.one_in(4) {
            true => {
                let payload = [&[2][..], &bytes, &[0, 0]].concat();
                self.push(DATA, flags | PADDED, stream, &payload);
            }
            false => self.push(DATA, flags, stream, &bytes),
        }
        match ends {
            true => self.ended(at),
            false => self.sending[at].1 = owed.map(|owed| owed - length),
        }
    }

    fn ended(&mut self, at: usize) {
        let (stream, _) = self.sending.remove(at);
        self.waiting.push(stream);
    }

    fn trailers(&mut self) {
        let ready = self
            .sending
            .iter()
            .position(|(_, owed)| owed.unwrap_or(0) == 0);
        let Some(at) = ready else {
            return self.data();
        };
        let stream = self.sending[at].0;
        self.field_block(stream, &[(b"x-checksum", b"1")], true);
        self.ended(at);
    }

    fn reset(&mut self) {
        let stream = self.any_stream();
        if stream > 0 {
            self.push(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            self.sending.retain(|(sending, _)| *sending != stream);
            self.waiting.retain(|waiting| *waiting != stream);
        }
    }
}
