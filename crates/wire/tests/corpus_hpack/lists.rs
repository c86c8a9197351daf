//! Makes lists of fields from parts, most of which are valid, and field blocks of them.

use super::invariants::Field;

/// Seeded generator; deterministic on all platforms.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn of_list(&mut self, list: &[&'static str]) -> Vec<u8> {
        list[self.below(list.len())].as_bytes().to_vec()
    }

    /// Changes, inserts or removes a byte.
    pub(crate) fn damage(&mut self, bytes: &mut Vec<u8>) {
        const ODD: &[u8] = b"\r\n\t \0:;,\"\\\x7f\x80\xff_.-+0aA/?#%@[]=\x01\x1f!|^~";
        let at = self.below(bytes.len() + 1);
        let byte = match self.one_in(2) {
            true => ODD[self.below(ODD.len())],
            false => self.below(256) as u8,
        };
        match self.below(3) {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, byte),
        }
    }
}

const METHODS: &[&str] = &[
    "GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "get", "X-Y", "CONNECT",
];
const PATHS: &[&str] = &[
    "/",
    "/",
    "/a/b?c=d",
    "/%2f/..;x",
    "*",
    "//x",
    "/?",
    "/\"<>|",
    "http://h/",
];
const AUTHORITIES: &[&str] = &[
    "h",
    "h",
    "shop.example:8443",
    "[::1]:80",
    "10.0.0.1",
    "h.",
    "u@h",
    "h:",
];
const SCHEMES: &[&str] = &["https", "https", "http", "HTTP", "ftp", "a b"];
const NAMES: &[&str] = &[
    "accept",
    "accept-encoding",
    "user-agent",
    "cookie",
    "cookie",
    "referer",
    "x-name",
    "x_name",
    "x.y",
    "content-type",
    "authorization",
    "te",
    "expect",
    "host",
    "content-length",
    "priority",
    "sec-fetch-mode",
    "a",
    "connection",
    "upgrade",
    "transfer_encoding",
    "trailer",
    "x^y",
    "x~y",
    "grpc-timeout",
    ":path",
    "Accept",
    "date",
    "via",
];
const VALUES: &[&str] = &[
    "",
    "a",
    "a=b",
    "a=b; c=d",
    "trailers",
    "h",
    "0",
    "12",
    "*/*",
    "gzip, deflate",
    "a\tb c",
    "text/html,application/xhtml+xml;q=0.9",
    "Sat, 28 Nov 2026 14:27:06 GMT",
    "100-continue",
    "\u{e9}\u{20ac}",
    "?0",
    "\"Linux\"",
    "x:y",
    "302",
    "307",
];

/// Makes the fields of a request, in which one list in four has a fault.
pub(crate) fn request(chance: &mut Chance) -> Vec<Field> {
    let mut list: Vec<Field> = Vec::new();
    let mut add = |name: &str, value| list.push((name.as_bytes().to_vec(), value));
    add(":method", chance.of_list(METHODS));
    add(":scheme", chance.of_list(SCHEMES));
    add(":path", chance.of_list(PATHS));
    if !chance.one_in(8) {
        add(":authority", chance.of_list(AUTHORITIES));
    }
    for _ in 0..chance.below(list.len()) {
        let (a, b) = (chance.below(list.len()), chance.below(list.len()));
        list.swap(a, b);
    }
    for _ in 0..chance.below(8) {
        let name = chance.of_list(NAMES);
        let value = match &name[..] {
            b"te" => b"trailers".to_vec(),
            b"content-length" => b"12".to_vec(),
            b"host" => b"h".to_vec(),
            b"connection" | b"upgrade" | b":path" | b"Accept" if !chance.one_in(8) => continue,
            _ => chance.of_list(VALUES),
        };
        list.push((name, value));
    }
    if chance.one_in(4) {
        spoil(chance, &mut list);
    }
    list
}

fn spoil(chance: &mut Chance, list: &mut Vec<Field>) {
    let at = chance.below(list.len());
    match chance.below(5) {
        0 => chance.damage(&mut list[at].0),
        1 | 2 => chance.damage(&mut list[at].1),
        3 => {
            list.remove(at);
        }
        _ => {
            let field = list[at].clone();
            list.insert(chance.below(list.len() + 1), field);
        }
    }
}

/// Makes fields of any bytes, some of which come again.
pub(crate) fn any(chance: &mut Chance) -> Vec<Field> {
    let mut list = Vec::new();
    for _ in 0..chance.below(12) {
        let mut name = chance.of_list(NAMES);
        let mut value = chance.of_list(VALUES);
        if chance.one_in(4) {
            let length = [4, 40, 300, 5_000][chance.below(4)];
            value = (0..chance.below(length))
                .map(|_| chance.below(256) as u8)
                .collect();
        }
        if chance.one_in(8) {
            name = (0..chance.below(40))
                .map(|_| chance.below(256) as u8)
                .collect();
        }
        list.push((name, value));
    }
    list
}

/// Encodes fields by another encoder, in any of the forms.
pub(crate) fn encode_other(
    encoder: &mut httlib_hpack::Encoder<'static>,
    fields: &[Field],
    chance: &mut Chance,
) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // Huffman codes, and the best form; one of indexing, none, or never.
        let form = [0x4, 0x4, 0x0, 0x8][chance.below(4)];
        let flags = (chance.below(4) as u8) | form | 0x10;
        let field = (name.clone(), value.clone(), flags);
        encoder.encode(field, &mut block).expect("a field");
    }
    block
}
