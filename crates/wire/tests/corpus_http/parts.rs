//! Makes messages of HTTP from parts, most of which are valid.

use std::env;

/// Returns the number of inputs to make: `HTTP_INPUTS` in the environment, if it is there.
pub(crate) fn count(otherwise: u64) -> u64 {
    let count = env::var("HTTP_INPUTS").ok();
    count.map_or(otherwise, |count| count.parse().expect("a number"))
}

/// Seeded generator; deterministic on all platforms.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn of_list<'a>(&mut self, list: &[&'a [u8]]) -> &'a [u8] {
        list[self.below(list.len())]
    }

    /// Changes, inserts or removes a few bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        const ODD: &[u8] = b"\r\n\t \0:;,\"\\\x7f\x80\xff_.-+0aA/?#%@[]=\x0b\x0c\x1f!|";
        for _ in 0..self.below(3) {
            let at = self.below(bytes.len() + 1);
            let byte = ODD[self.below(ODD.len())];
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                2 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                _ => bytes.insert(at, byte),
            }
        }
    }
}

const METHODS: &[&[u8]] = &[
    b"GET", b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"get", b"X-Y", b"",
];
const TARGETS: &[&[u8]] = &[
    b"/",
    b"/a/b?c=d",
    b"/a%2fb/../c",
    b"http://h/a",
    b"http://h",
    b"HTTPS://h:443?x",
    b"*",
    b"h:80",
    b"http://u@h/",
    b"/a#b",
    b"",
    b"/?",
    b"//x",
    b"/\"<>|",
];
const VERSIONS: &[&[u8]] = &[
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/1.2",
    b"http/1.1",
    b"HTTP/1.",
    b"HTTP/11",
];
const NAMES: &[&[u8]] = &[
    b"Host",
    b"host",
    b"Content-Length",
    b"content_length",
    b"Transfer-Encoding",
    b"Transfer.Encoding",
    b"Connection",
    b"Upgrade",
    b"Expect",
    b"TE",
    b"Trailer",
    b"Keep-Alive",
    b"Cookie",
    b"Set-Cookie",
    b"X-Forwarded-For",
    b"X_Forwarded_For",
    b"x-removed",
    b"X.Removed",
    b"X-Set",
    b"Sec-WebSocket-Key",
    b"Sec-WebSocket-Version",
    b"X-a",
    b"A",
    b"Client-Cert",
    b"Proxy-Connection",
    b"HTTP2-Settings",
    b"Authorization",
    b"Content-Type",
    b"",
];
const VALUES: &[&[u8]] = &[
    b"h",
    b"h:80",
    b"H",
    b"h:443",
    b"u@h",
    b"a,b",
    b"[::1]:8080",
    b"127.0.0.1",
    b"0x7f.1",
    b"h.",
    b"0",
    b"5",
    b"05",
    b"+5",
    b"5, 5",
    b"9223372036854775807",
    b"9223372036854775808",
    b"99999999999999999999",
    b"chunked",
    b"Chunked",
    b"gzip, chunked",
    b"chunked, chunked",
    b"identity",
    b"chunked;q=1",
    b"close",
    b"keep-alive",
    b"Upgrade",
    b"close, X-a",
    b"keep-alive, Upgrade",
    b"Content-Length, Host, Cookie",
    b"websocket",
    b"h2c",
    b"dGhlIHNhbXBsZSBub25jZQ==",
    b"13",
    b"8",
    b"100-continue",
    b"trailers",
    b"trailers, deflate",
    b"",
    b"a b\tc",
    b"\xe4\xf6",
    b"a=b; c=d",
    b"this-is-a-longer-value-of-more-than-32-bytes-0123",
];
const COLONS: &[&[u8]] = &[
    b": ", b": ", b": ", b": ", b":", b":\t ", b" : ", b":  ", b" ",
];
const ENDS: &[&[u8]] = &[
    b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b" \r\n",
    b"\r\n ", b"\r\n\t",
];

/// Lines that are valid, alone at least.
const LINES: &[&[u8]] = &[
    b"Connection: close, X-a\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: Upgrade\r\n",
    b"Connection: Content-Length, Host, x-forwarded-for, Cookie\r\n",
    b"X-a: 1\r\n",
    b"X-a:2 \r\n",
    b"Upgrade: websocket\r\n",
    b"Sec-WebSocket-Version: 13\r\n",
    b"Content-Length: 7\r\n",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"TE: trailers\r\n",
    b"Trailer: X-a\r\n",
    b"Cookie: a=b\r\n",
    b"X_Forwarded_For: 192.0.2.9\r\n",
    b"X-Forwarded.For: 192.0.2.9\r\n",
    b"x-SET: 5\r\n",
    b"X-Removed: 1\r\n",
    b"client.cert: x\r\n",
    b"Keep-Alive: timeout=5\r\n",
    b"B:\t x\ty \t\r\n",
];

fn add_fields(chance: &mut Chance, bytes: &mut Vec<u8>) {
    for _ in 0..chance.below(7) {
        if chance.below(4) > 0 {
            bytes.extend_from_slice(chance.of_list(LINES));
            continue;
        }
        bytes.extend_from_slice(chance.of_list(NAMES));
        bytes.extend_from_slice(chance.of_list(COLONS));
        bytes.extend_from_slice(chance.of_list(VALUES));
        bytes.extend_from_slice(chance.of_list(ENDS));
    }
    bytes.extend_from_slice(b"\r\n");
}

/// Returns bytes that are often a request.
pub(crate) fn a_request(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = b"\r\n".repeat(usize::from(chance.below(10) == 0));
    bytes.extend_from_slice(chance.of_list(METHODS));
    bytes.push(b' ');
    bytes.extend_from_slice(chance.of_list(TARGETS));
    bytes.push(b' ');
    bytes.extend_from_slice(chance.of_list(VERSIONS));
    bytes.extend_from_slice(chance.of_list(ENDS));
    if chance.below(4) > 0 {
        bytes.extend_from_slice(b"Host: h\r\n");
    }
    add_fields(chance, &mut bytes);
    if chance.below(3) == 0 {
        chance.damage(&mut bytes);
    }
    bytes
}

/// Returns bytes that are often a response.
pub(crate) fn a_response(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = chance.of_list(VERSIONS).to_vec();
    bytes.push(b' ');
    bytes.extend_from_slice(chance.of_list(&[
        b"200 OK",
        b"200",
        b"204 No Content",
        b"304 ",
        b"100 Continue",
        b"101 x",
        b"103 x",
        b"999 x",
        b"099 x",
        b"20 x",
        b"2000",
        b"404 Not\tFound",
    ]));
    bytes.extend_from_slice(chance.of_list(ENDS));
    add_fields(chance, &mut bytes);
    if chance.below(3) == 0 {
        chance.damage(&mut bytes);
    }
    bytes
}

/// Returns bytes that are often a chunked body.
pub(crate) fn a_body(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..chance.below(4) {
        let length = chance.below(20) + 1;
        let line = match chance.below(8) {
            0 => format!("{length:X}"),
            1 => format!("0{length:x}"),
            2 => format!("{length:x};a=b"),
            3 => format!("{length:x} ; a = \"b\\\"\" ;c"),
            _ => format!("{length:x}"),
        };
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend((0..length).map(|_| b'x'));
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(chance.of_list(&[b"0\r\n", b"00\r\n", b"0;x\r\n"]));
    if chance.below(3) == 0 {
        add_fields(chance, &mut bytes);
    } else {
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(chance.of_list(&[b"", b"", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n"]));
    if chance.below(2) == 0 {
        chance.damage(&mut bytes);
    }
    bytes
}
