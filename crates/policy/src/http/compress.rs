//! Decides which responses are compressed, and with which coding.

/// Media types that are compressed if the configuration names no others: texts, and formats that
/// are not compressed themselves.
pub const DEFAULT_TYPES: [&str; 16] = [
    "text/*",
    "*+json",
    "*+xml",
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/xml",
    "application/x-ndjson",
    "application/wasm",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
];

/// Beginning of the media types of gRPC, which compresses each message itself.
const GRPC: &[u8] = b"application/grpc";

/// Content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings.
    pub const ALL: [Coding; 2] = [Coding::Brotli, Coding::Gzip];

    /// Returns the registered name.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// Returns all names that mean the coding (RFC 9110 §8.4.1.3).
    pub fn names(self) -> &'static [&'static [u8]] {
        match self {
            Coding::Brotli => &[b"br"],
            Coding::Gzip => &[b"gzip", b"x-gzip"],
        }
    }
}

/// Set of media types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaRange {
    /// One type, such as `application/json`.
    Exact(String),
    /// All with this beginning: `text/`.
    Type(String),
    /// All with this structured syntax (RFC 6838 §4.2.8): `+json`.
    Syntax(String),
}

impl MediaRange {
    /// Reads `application/json`, `text/*` or `*+json`. `None`: it is none of these.
    pub fn parse(text: &str) -> Option<MediaRange> {
        let text = text.to_ascii_lowercase();
        if let Some(syntax) = text.strip_prefix('*') {
            let name = syntax.strip_prefix('+')?;
            return is_name(name).then(|| MediaRange::Syntax(syntax.to_owned()));
        }
        match text.split_once('/')? {
            (kind, "*") => is_name(kind).then(|| MediaRange::Type(format!("{kind}/"))),
            (kind, name) => {
                (is_name(kind) && is_name(name)).then_some(MediaRange::Exact(text.clone()))
            }
        }
    }

    /// Returns whether the set has a type, which is without parameters.
    fn has(&self, media_type: &[u8]) -> bool {
        let begins = |start: &str| media_type.get(..start.len());
        let from = |end: &str| media_type.len().checked_sub(end.len());
        let (part, wanted) = match self {
            MediaRange::Exact(wanted) => (Some(media_type), wanted),
            MediaRange::Type(wanted) => (begins(wanted), wanted),
            MediaRange::Syntax(wanted) => {
                (from(wanted).and_then(|at| media_type.get(at..)), wanted)
            }
        };
        part.is_some_and(|part| part.eq_ignore_ascii_case(wanted.as_bytes()))
    }
}

/// Returns whether a text may be one side of a media type (RFC 6838 §4.2).
fn is_name(text: &str) -> bool {
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    !text.is_empty() && text.bytes().all(is_named)
}

/// Responses that a service compresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressSettings {
    /// Codings, the preferred one first.
    pub codings: Vec<Coding>,
    /// Media types.
    pub types: Vec<MediaRange>,
    /// Minimum length of a body in bytes, if it is known.
    pub bytes_min: u64,
}

/// Quality that a client gives to each coding, in thousandths. `None`: it does not mention it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Qualities {
    /// Quality of Brotli.
    pub brotli: Option<u16>,
    /// Quality of gzip.
    pub gzip: Option<u16>,
    /// Quality of a body without coding, if the client names it.
    pub identity: Option<u16>,
}

/// Facts of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseFacts<'a> {
    /// Status.
    pub status: u16,
    /// Length of the body in bytes. `None`: it is not known.
    pub length: Option<u64>,
    /// Value of `Content-Type`. Empty: there is none.
    pub media_type: &'a [u8],
    /// True if the body must stay as it is: it has a coding already, its origin forbids changes
    /// (RFC 9110 §7.7), or a digest of it was sent.
    pub is_fixed: bool,
}

/// Decision about a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// The body passes unchanged, for all clients.
    Never,
    /// The body passes unchanged, but other clients get other bytes: `Vary: Accept-Encoding`.
    NotHere,
    /// The body is compressed with this coding.
    With(Coding),
}

impl CompressSettings {
    /// Returns the coding for a client: that of the highest quality, and the preferred one of the
    /// service among those. `None`: the client accepts none of them, or prefers none.
    pub fn choose(&self, qualities: &Qualities) -> Option<Coding> {
        let quality = |coding: Coding| match coding {
            Coding::Brotli => qualities.brotli,
            Coding::Gzip => qualities.gzip,
        };
        // A body without coding is acceptable by default, and then the last choice.
        let minimum = qualities.identity.unwrap_or(0).max(1);
        let mut best: Option<(u16, Coding)> = None;
        for coding in &self.codings {
            let own = quality(*coding).unwrap_or(0);
            if own >= minimum && best.is_none_or(|(highest, _)| own > highest) {
                best = Some((own, *coding));
            }
        }
        best.map(|(_, coding)| coding)
    }

    /// Decides about a response for a client that accepts a coding.
    pub fn decide(&self, response: &ResponseFacts<'_>, accepted: Option<Coding>) -> Compression {
        if response.is_fixed || !self.has_type(response.media_type) {
            return Compression::Never;
        }
        match (response.status, response.length) {
            (100..200 | 204 | 205 | 304, _) => Compression::Never,
            // A range of the uncompressed bytes. Without a range the client gets others.
            (206, _) => Compression::NotHere,
            (_, Some(length)) if length < self.bytes_min.max(1) => Compression::Never,
            _ => accepted.map_or(Compression::NotHere, Compression::With),
        }
    }

    fn has_type(&self, value: &[u8]) -> bool {
        let end = value.iter().position(|byte| *byte == b';');
        let media_type = value.get(..end.unwrap_or(value.len()));
        let media_type = media_type.unwrap_or_default().trim_ascii();
        let is_grpc = media_type
            .get(..GRPC.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(GRPC));
        !is_grpc && self.types.iter().any(|range| range.has(media_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(codings: &[Coding]) -> CompressSettings {
        let types = DEFAULT_TYPES.map(|text| MediaRange::parse(text).unwrap());
        CompressSettings {
            codings: codings.to_vec(),
            types: types.to_vec(),
            bytes_min: 1_024,
        }
    }

    const PAGE: ResponseFacts<'static> = ResponseFacts {
        status: 200,
        length: Some(1_024),
        media_type: b"text/html; charset=utf-8",
        is_fixed: false,
    };

    #[track_caller]
    fn assert_decision(response: ResponseFacts<'_>, expect: Compression) {
        let settings = settings(&[Coding::Gzip]);
        let decision = settings.decide(&response, Some(Coding::Gzip));
        assert_eq!(decision, expect, "{response:?}");
        let without = settings.decide(&response, None);
        let expect = match expect {
            Compression::With(_) => Compression::NotHere,
            other => other,
        };
        assert_eq!(without, expect, "{response:?} for a client without codings");
    }

    #[test]
    fn the_highest_quality_wins_and_the_service_prefers_among_equals() {
        use Coding::{Brotli, Gzip};
        let q = |brotli, gzip, identity| Qualities {
            brotli,
            gzip,
            identity,
        };
        for (qualities, expect) in [
            (q(Some(1_000), Some(1_000), None), Some(Brotli)),
            (q(Some(500), Some(501), None), Some(Gzip)),
            (q(None, Some(1), None), Some(Gzip)),
            (q(Some(0), Some(0), None), None),
            (q(None, None, None), None),
            (q(Some(400), Some(500), Some(501)), None),
            (q(Some(400), Some(500), Some(500)), Some(Gzip)),
            (q(Some(400), Some(500), Some(0)), Some(Gzip)),
        ] {
            let chosen = settings(&[Brotli, Gzip]).choose(&qualities);
            assert_eq!(chosen, expect, "{qualities:?}");
        }
        let both = q(Some(1_000), Some(1_000), None);
        assert_eq!(settings(&[Gzip, Brotli]).choose(&both), Some(Gzip));
        assert_eq!(settings(&[Gzip]).choose(&both), Some(Gzip));
    }

    #[test]
    fn statuses_and_lengths_decide() {
        let with = Compression::With(Coding::Gzip);
        for (status, length, expect) in [
            (200, Some(1_024), with),
            (404, None, with),
            (500, Some(u64::MAX), with),
            (200, Some(1_023), Compression::Never),
            (200, Some(0), Compression::Never),
            (206, Some(10), Compression::NotHere),
            (101, None, Compression::Never),
            (204, None, Compression::Never),
            (205, None, Compression::Never),
            (304, None, Compression::Never),
        ] {
            let response = ResponseFacts {
                status,
                length,
                ..PAGE
            };
            assert_decision(response, expect);
        }
        let fixed = ResponseFacts {
            is_fixed: true,
            ..PAGE
        };
        assert_decision(fixed, Compression::Never);
        let mut any = settings(&[Coding::Gzip]);
        any.bytes_min = 0;
        let empty = ResponseFacts {
            length: Some(0),
            ..PAGE
        };
        assert_eq!(any.decide(&empty, None), Compression::Never);
    }

    #[test]
    fn media_types_decide() {
        for (media_type, is_compressed) in [
            ("TEXT/css", true),
            ("text/event-stream", true),
            ("application/json ;charset=x", true),
            ("application/problem+JSON", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("image/png", false),
            ("application/octet-stream", false),
            ("application/jsonx", false),
            ("application/grpc", false),
            ("Application/grpc+json", false),
            ("application/grpc-web-text+json", false),
            ("text", false),
            ("", false),
        ] {
            let response = ResponseFacts {
                media_type: media_type.as_bytes(),
                ..PAGE
            };
            let expect = match is_compressed {
                true => Compression::With(Coding::Gzip),
                false => Compression::Never,
            };
            assert_decision(response, expect);
        }
    }

    #[test]
    fn media_ranges_are_read() {
        let exact = |text: &str| Some(MediaRange::Exact(text.to_owned()));
        assert_eq!(MediaRange::parse("Text/HTML"), exact("text/html"));
        let all = MediaRange::Type("text/".to_owned());
        assert_eq!(MediaRange::parse("text/*"), Some(all));
        let syntax = MediaRange::Syntax("+json".to_owned());
        assert_eq!(MediaRange::parse("*+json"), Some(syntax));
        for text in [
            "", "*", "*/*", "text", "text/", "/x", "*json", "*+", "a/b/c", "a/b;c", "a b/c",
        ] {
            assert_eq!(MediaRange::parse(text), None, "{text}");
        }
    }
}
