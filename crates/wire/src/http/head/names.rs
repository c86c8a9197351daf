//! Field names that the code knows, and their recognition.

use crate::http::grammar;

/// Makes the enum of known names from one list.
macro_rules! known_names {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// Field name that the code knows. Names are equal in any case of their letters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum KnownName {
            $(#[doc = concat!("`", $text, "`.")] $variant,)+
            /// Any other name.
            Other,
        }

        const NAMES: &[(&str, KnownName)] = &[$(($text, KnownName::$variant),)+];

        impl KnownName {
            /// Returns the name in the usual case. Empty for [`KnownName::Other`].
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(KnownName::$variant => $text,)+
                    KnownName::Other => "",
                }
            }
        }
    };
}

known_names! {
    Accept = "Accept",
    AcceptEncoding = "Accept-Encoding",
    Age = "Age",
    Authorization = "Authorization",
    CacheControl = "Cache-Control",
    ClientCert = "Client-Cert",
    ClientCertChain = "Client-Cert-Chain",
    Connection = "Connection",
    ContentEncoding = "Content-Encoding",
    ContentLength = "Content-Length",
    ContentRange = "Content-Range",
    ContentType = "Content-Type",
    Cookie = "Cookie",
    Date = "Date",
    ETag = "ETag",
    Expect = "Expect",
    Forwarded = "Forwarded",
    Host = "Host",
    Http2Settings = "HTTP2-Settings",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    KeepAlive = "Keep-Alive",
    LastModified = "Last-Modified",
    Location = "Location",
    MaxForwards = "Max-Forwards",
    Origin = "Origin",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection",
    ProxyStatus = "Proxy-Status",
    Range = "Range",
    Referer = "Referer",
    RetryAfter = "Retry-After",
    SecWebSocketAccept = "Sec-WebSocket-Accept",
    SecWebSocketExtensions = "Sec-WebSocket-Extensions",
    SecWebSocketKey = "Sec-WebSocket-Key",
    SecWebSocketProtocol = "Sec-WebSocket-Protocol",
    SecWebSocketVersion = "Sec-WebSocket-Version",
    Server = "Server",
    SetCookie = "Set-Cookie",
    StrictTransportSecurity = "Strict-Transport-Security",
    Te = "TE",
    Traceparent = "Traceparent",
    Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    UserAgent = "User-Agent",
    Vary = "Vary",
    Via = "Via",
    WwwAuthenticate = "WWW-Authenticate",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedPort = "X-Forwarded-Port",
    XForwardedPrefix = "X-Forwarded-Prefix",
    XForwardedProto = "X-Forwarded-Proto",
    XRealIp = "X-Real-IP",
    XRequestId = "X-Request-ID",
}

/// Slots of the table, a power of two.
const SLOTS: usize = 256;

/// Index into `NAMES` by slot; `NONE` where no name is.
static TABLE: [u8; SLOTS] = table();
const NONE: u8 = u8::MAX;

/// Returns the slot of a name by its length, its first and last byte, and the fourth from its end.
/// The multipliers were chosen such that no two known names share one; the table is not built
/// otherwise.
#[inline]
const fn slot(length: usize, first: u8, fourth: u8, last: u8) -> usize {
    let sum = (length as u32)
        .wrapping_mul(MULTIPLIERS.0)
        .wrapping_add(((first | 0x20) as u32).wrapping_mul(MULTIPLIERS.1))
        .wrapping_add(((fourth | 0x20) as u32).wrapping_mul(MULTIPLIERS.2))
        .wrapping_add(((last | 0x20) as u32).wrapping_mul(MULTIPLIERS.3));
    (sum >> 8) as usize & (SLOTS - 1)
}
const MULTIPLIERS: (u32, u32, u32, u32) = (20_945, 58_251, 25_111, 55_569);

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "runs when the program is compiled"
)]
const fn table() -> [u8; SLOTS] {
    let mut table = [NONE; SLOTS];
    let mut index = 0;
    while index < NAMES.len() {
        let name = NAMES[index].0.as_bytes();
        let fourth = if name.len() < 4 {
            0
        } else {
            name[name.len() - 4]
        };
        let place = slot(name.len(), name[0], fourth, name[name.len() - 1]);
        if table[place] != NONE {
            panic!("two known names share a slot: choose other multipliers");
        }
        table[place] = index as u8;
        index += 1;
    }
    table
}

impl KnownName {
    /// Returns the known name that the bytes write, in any case.
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        match grammar::is_token_text(name) {
            true => KnownName::of_token(name),
            false => KnownName::Other,
        }
    }

    /// Returns the known name that a token writes, in any case.
    #[inline]
    pub(crate) fn of_token(name: &[u8]) -> Self {
        let (Some(&first), Some(&last)) = (name.first(), name.last()) else {
            return KnownName::Other;
        };
        let fourth = name.get(name.len().wrapping_sub(4)).copied();
        let place = slot(name.len(), first, fourth.unwrap_or_default(), last);
        let index = TABLE.get(place).copied().unwrap_or(NONE);
        match NAMES.get(usize::from(index)) {
            Some((text, known)) if same_token(text.as_bytes(), name) => *known,
            _ => KnownName::Other,
        }
    }

    /// Returns the bit of the name in a set of known names.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << (self as u8)
    }
}

/// Returns whether two tokens are equal in any case, where the first has only letters, digits, `-`
/// and `:`: no other byte of a token becomes one of these with its bit 0x20 set.
#[inline]
pub(crate) fn same_token(known: &[u8], name: &[u8]) -> bool {
    const CASE: u64 = u64::from_ne_bytes([0x20; 8]);
    if known.len() != name.len() {
        return false;
    }
    let words = (known.as_chunks::<8>(), name.as_chunks::<8>());
    let ((known_words, known_rest), (name_words, name_rest)) = words;
    let mut differs = 0;
    for (known, name) in known_words.iter().zip(name_words) {
        differs |= u64::from_ne_bytes(*known) ^ u64::from_ne_bytes(*name);
    }
    let is_same = differs & !CASE == 0;
    let pairs = known_rest.iter().zip(name_rest);
    is_same && pairs.fold(0, |differs, (known, name)| differs | (known ^ name)) & !0x20 == 0
}

const _: () = assert!(
    NAMES.len() < 64,
    "a set of known names is a word of 64 bits"
);
