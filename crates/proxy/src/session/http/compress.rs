//! Compresses the bodies of responses for clients that accept it (RFC 9110 §8.4, §12.5.3).

mod compressor;

use evenkeel_policy::http::compress::{
    Coding, CompressSettings, Compression, Qualities, ResponseFacts,
};
use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkEncoder, ChunkLimits};
use evenkeel_wire::http::entity_tag::{has_tag, write_marked, write_originals};
use evenkeel_wire::http::negotiation::{coding_quality, has_member};
use evenkeel_wire::http::{
    BodyEdit, Field, Framing, KnownName, RequestHead, ResponseHead, Version,
};

use self::compressor::{Compressor, Compressors};
use super::admit::values_of;
use super::download::{Download, Passed, take, unchunk};
use super::{ExitReason, Session, Stage};
use crate::service::ServiceSnapshot;

/// Bytes of a body that are compressed before the worker's other sessions have their turn: about
/// half a millisecond.
const TURN_BYTES: usize = 32 * 1024;

/// Names by which the tags of compressed bodies are marked.
const MARKS: [&[u8]; 2] = [b"br", b"gzip"];

/// Fields with digests of the body: they prove that it came unchanged, which is worth more than its
/// compression (RFC 9530, RFC 3230, RFC 1864).
const DIGESTS: [&[u8]; 4] = [b"Content-Digest", b"Repr-Digest", b"Digest", b"Content-MD5"];

/// Facts of a request on which the compression of its response depends.
pub(super) struct ClientCodings {
    /// Coding for the client. `None`: it accepts none.
    accepted: Option<Coding>,
    /// Value of `If-None-Match` with tags of compressed bodies; else empty.
    known_tags: Vec<u8>,
}

/// Changes of a response head.
pub(super) struct HeadChanges {
    /// Fields to set.
    pub(super) set: Vec<(&'static [u8], Vec<u8>)>,
    /// Names of fields to remove.
    pub(super) remove: &'static [&'static [u8]],
    pub(super) body: BodyChange,
}

/// Change of a response's body.
pub(super) enum BodyChange {
    Keep,
    /// Compressed. `None`: there is no body, as to HEAD.
    Compress(Option<Box<Body>>),
}

/// Compressor of a body that has not begun.
pub(super) struct Body(Compressor);

/// Body that is compressed on the way.
pub(super) struct Compressed {
    source: Source,
    compressor: Compressor,
    /// Chunks of HTTP/1.1. `None`: the end comes apart from the bytes.
    encoder: Option<ChunkEncoder>,
    /// Memory for compressed bytes that become a chunk.
    scratch: Vec<u8>,
    /// Bytes that were compressed in this turn of the worker.
    turn_bytes: usize,
}

/// Framing of a body at the server.
enum Source {
    /// Number of bytes that have not been received.
    Length(u64),
    Chunked(Box<ChunkDecoder>),
    UntilClose,
}

/// Fields of a response as the client gets them: those that its route sets, else the server's.
#[derive(Clone, Copy)]
struct Fields<'a> {
    head: &'a ResponseHead,
    bytes: &'a [u8],
    set: &'a [(&'a [u8], &'a [u8])],
}

impl Session<'_> {
    /// Notes what the compression of the response depends on.
    pub(super) fn note_codings(
        &mut self,
        settings: &CompressSettings,
        head: &RequestHead,
        bytes: &[u8],
    ) {
        let values = || head.get_all(bytes, KnownName::AcceptEncoding);
        let qualities = Qualities {
            brotli: coding_quality(values(), Coding::Brotli.names()),
            gzip: coding_quality(values(), Coding::Gzip.names()),
            identity: values()
                .any(|value| has_member(std::iter::once(value), b"identity"))
                .then(|| coding_quality(values(), &[b"identity"]))
                .flatten(),
        };
        // Clients of HTTP/1.0 know no chunks, and need the end of the connection in their place.
        let accepted = match head.version() {
            Version::Http10 => None,
            Version::Http11 => settings.choose(&qualities),
        };
        let tags = joined(head.get_all(bytes, KnownName::IfNoneMatch));
        let is_marked = write_originals(&mut Vec::new(), &tags, &MARKS);
        self.exchange.codings = Some(Box::new(ClientCodings {
            accepted,
            known_tags: if is_marked { tags } else { Vec::new() },
        }));
    }

    /// Returns the conditions of a request that name compressed bodies, with the server's tags.
    pub(super) fn original_conditions(
        &self,
        head: &RequestHead,
        bytes: &[u8],
    ) -> Vec<(&'static [u8], Vec<u8>)> {
        let mut conditions: Vec<(&'static [u8], Vec<u8>)> = Vec::new();
        if self.exchange.codings.is_none() {
            return conditions;
        }
        for name in ["If-None-Match", "If-Match"] {
            let tags = joined(values_of(head, bytes, name));
            let mut originals = Vec::new();
            if write_originals(&mut originals, &tags, &MARKS) {
                conditions.push((name.as_bytes(), originals));
            }
        }
        conditions
    }

    /// Returns what the compression changes of a response. `None`: nothing. `set` are the fields
    /// that the route sets.
    pub(super) fn compression(
        &self,
        head: &ResponseHead,
        bytes: &[u8],
        view: &ServiceSnapshot,
        set: &[(&[u8], &[u8])],
    ) -> Option<HeadChanges> {
        let codings = self.exchange.codings.as_ref()?;
        let settings = view.http()?.clients.compress.as_ref()?;
        let fields = Fields { head, bytes, set };
        if head.status() == 304 {
            return fields.not_modified(codings);
        }
        match settings.decide(&fields.facts(), codings.accepted) {
            Compression::Never => None,
            Compression::NotHere => fields.varied(),
            Compression::With(coding) if !head.framing().has_body() => {
                Some(fields.compressed(coding, None))
            }
            Compression::With(coding) => {
                let shared = self.worker.local::<Compressors>();
                match Compressor::new(&shared, coding) {
                    Some(compressor) => Some(fields.compressed(coding, Some(compressor))),
                    None => fields.varied(),
                }
            }
        }
    }

    /// Sends what the compressor holds, when no more of the body is there. Returns false if it
    /// holds nothing.
    pub(super) fn flush_body(&mut self) -> Result<bool, ExitReason> {
        let Stage::Body(Download::Compressed(body)) = &mut self.stage else {
            return Ok(false);
        };
        if !body.compressor.holds() {
            return Ok(false);
        }
        let mut out = self.worker.take_spare();
        let flushed = body.flush(&mut out);
        flushed.map_err(ExitReason::ServerBroke)?;
        self.send_to_client(out)?;
        Ok(true)
    }

    /// Returns whether the body has used the session's part of the worker's turn. It has another
    /// one in the next turn.
    pub(super) fn ends_turn(&mut self) -> bool {
        match &mut self.stage {
            Stage::Body(Download::Compressed(body)) if body.turn_bytes >= TURN_BYTES => {
                body.turn_bytes = 0;
                true
            }
            _ => false,
        }
    }
}

impl<'a> Fields<'a> {
    fn of_route(&self, name: &str) -> Option<&'a [u8]> {
        let mut set = self.set.iter();
        set.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| *value)
    }

    fn all(&self, name: KnownName) -> impl Iterator<Item = &'a [u8]> {
        let of_route = self.of_route(name.text());
        let of_server = self.head.get_all(self.bytes, name);
        let of_server = of_server.filter(move |_| of_route.is_none());
        of_route.into_iter().chain(of_server)
    }

    fn facts(&self) -> ResponseFacts<'a> {
        ResponseFacts {
            status: self.head.status(),
            length: match self.head.framing() {
                Framing::None => self.head.content_length(),
                Framing::Length(length) => Some(length),
                Framing::Chunked | Framing::UntilClose => None,
            },
            media_type: self.all(KnownName::ContentType).next().unwrap_or_default(),
            is_fixed: self.is_fixed(),
        }
    }

    fn is_fixed(&self) -> bool {
        let is_range = self.head.has(KnownName::ContentRange) && self.head.status() != 206;
        let is_digest = |name: &[u8]| DIGESTS.iter().any(|one| one.eq_ignore_ascii_case(name));
        let mut others = self.head.fields(self.bytes);
        is_range
            || self.all(KnownName::ContentEncoding).next().is_some()
            || has_member(self.all(KnownName::CacheControl), b"no-transform")
            || others.any(|field| is_digest(field.name))
            || DIGESTS
                .iter()
                .any(|name| has_member(self.all(KnownName::Trailer), name))
            // A tag that the route sets is not the server's.
            || self.of_route("ETag").is_some()
    }

    /// Returns the value of `Vary` with `Accept-Encoding`. `None`: it has it.
    fn vary(&self) -> Option<(&'static [u8], Vec<u8>)> {
        let has = |name: &[u8]| has_member(self.all(KnownName::Vary), name);
        if has(b"Accept-Encoding") || has(b"*") {
            return None;
        }
        let own = std::iter::once(&b"Accept-Encoding"[..]);
        let before = self.all(KnownName::Vary).filter(|value| !value.is_empty());
        Some((b"Vary", joined(before.chain(own))))
    }

    /// Returns the changes of a response that is not compressed, but would be for others.
    fn varied(&self) -> Option<HeadChanges> {
        self.vary().map(|vary| HeadChanges {
            set: vec![vary],
            remove: &[],
            body: BodyChange::Keep,
        })
    }

    /// Returns the changes of a response that is compressed.
    fn compressed(&self, coding: Coding, compressor: Option<Compressor>) -> HeadChanges {
        let mut set = vec![(&b"Content-Encoding"[..], coding.name().into())];
        set.extend(self.vary());
        let mut tag = Vec::new();
        let own = self.all(KnownName::ETag).next().unwrap_or_default();
        if write_marked(&mut tag, own, coding.name().as_bytes()) {
            set.push((b"ETag", tag));
        }
        HeadChanges {
            set,
            // Ranges would be of the uncompressed bytes.
            remove: &[b"Accept-Ranges"],
            body: BodyChange::Compress(compressor.map(|compressor| Box::new(Body(compressor)))),
        }
    }

    /// Returns the changes of a response without a body, after which the client uses what it has:
    /// the tag is that of this body (RFC 9110 §15.4.5).
    fn not_modified(&self, codings: &ClientCodings) -> Option<HeadChanges> {
        let tag = self.all(KnownName::ETag).next()?;
        let preferred = codings.accepted.into_iter().chain(Coding::ALL);
        let mut marked = preferred.filter_map(|coding| {
            let mut marked = Vec::new();
            let is_strong = write_marked(&mut marked, tag, coding.name().as_bytes());
            (is_strong && has_tag(&codings.known_tags, &marked)).then_some(marked)
        });
        let marked = marked.next()?;
        let mut set = vec![(&b"ETag"[..], marked)];
        set.extend(self.vary());
        Some(HeadChanges {
            set,
            remove: &[],
            body: BodyChange::Keep,
        })
    }
}

impl HeadChanges {
    /// Puts the fields in the place of those that the route sets. Returns the names of fields to
    /// remove, and the edit of the body.
    pub(super) fn replace_in<'a>(
        &'a self,
        set: &mut Vec<(&'a [u8], &'a [u8])>,
    ) -> (&'static [&'static [u8]], BodyEdit) {
        let is_changed = |name: &[u8]| {
            self.set
                .iter()
                .any(|(own, _)| own.eq_ignore_ascii_case(name))
        };
        set.retain(|(name, _)| !is_changed(name));
        set.extend(self.set.iter().map(|(name, value)| (*name, &**value)));
        let body = match self.body {
            BodyChange::Keep => BodyEdit::Keep,
            BodyChange::Compress(_) => BodyEdit::Replace,
        };
        (self.remove, body)
    }

    /// Returns the compressor of the body, if it has one.
    pub(super) fn into_body(self) -> Option<Box<Body>> {
        match self.body {
            BodyChange::Keep => None,
            BodyChange::Compress(body) => body,
        }
    }
}

impl Body {
    /// Begins the body with its framing at the server and at the client. `None`: there is no body.
    pub(super) fn begin(self, from: Framing, to: Framing) -> Option<Compressed> {
        Some(Compressed {
            source: match from {
                Framing::None => return None,
                Framing::Length(length) => Source::Length(length),
                Framing::Chunked => {
                    Source::Chunked(Box::new(ChunkDecoder::new(ChunkLimits::default())))
                }
                Framing::UntilClose => Source::UntilClose,
            },
            compressor: self.0,
            encoder: (to == Framing::Chunked).then(ChunkEncoder::new),
            scratch: Vec::new(),
            turn_bytes: 0,
        })
    }
}

impl Compressed {
    pub(super) fn lasts_until_close(&self) -> bool {
        matches!(self.source, Source::UntilClose)
    }

    /// Returns the decoder whose trailers are sent apart from the body.
    pub(super) fn separate_trailers(&self) -> Option<&ChunkDecoder> {
        match (&self.source, &self.encoder) {
            (Source::Chunked(decoder), None) => Some(decoder),
            _ => None,
        }
    }

    /// Compresses the next bytes of the body.
    pub(super) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Passed, String> {
        self.turn_bytes += bytes.len();
        let passed = self.compress(bytes)?;
        match passed {
            Passed::Complete(_) => self.end(std::iter::empty(), out)?,
            Passed::Partial => self.write_chunk(out),
        }
        Ok(passed)
    }

    fn compress(&mut self, bytes: &[u8]) -> Result<Passed, String> {
        let (compressor, scratch) = (&mut self.compressor, &mut self.scratch);
        let mut outcome = Ok(());
        let mut write = |data: &[u8]| {
            if outcome.is_ok() {
                outcome = compressor.write(data, scratch);
            }
        };
        let passed = match &mut self.source {
            Source::Length(left) => {
                let taken = take(left, bytes);
                write(taken);
                match left {
                    0 => Passed::Complete(taken.len()),
                    _ => Passed::Partial,
                }
            }
            Source::Chunked(decoder) => {
                unchunk(decoder, bytes, write).map_err(|fault| fault.to_string())?
            }
            Source::UntilClose => {
                write(bytes);
                Passed::Partial
            }
        };
        outcome.map_err(|error| error.to_string())?;
        Ok(passed)
    }

    /// Appends all that the compressor holds.
    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let flushed = self.compressor.flush(&mut self.scratch);
        flushed.map_err(|error| error.to_string())?;
        self.write_chunk(out);
        Ok(())
    }

    /// Appends the end of the body, with trailers if it has chunks. Those of a body in chunks are
    /// its own.
    pub(super) fn end<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let finished = self.compressor.finish(&mut self.scratch);
        finished.map_err(|error| error.to_string())?;
        self.write_chunk(out);
        if let Some(encoder) = &mut self.encoder {
            let finished = match &self.source {
                Source::Chunked(decoder) => encoder.finish(decoder.trailers(), out),
                _ => encoder.finish(trailers, out),
            };
            debug_assert!(finished, "a body ends once");
        }
        Ok(())
    }

    /// Appends the compressed bytes in the client's framing.
    fn write_chunk(&mut self, out: &mut Vec<u8>) {
        match &mut self.encoder {
            Some(encoder) => encoder.whole(&self.scratch, out),
            None => out.extend_from_slice(&self.scratch),
        }
        self.scratch.clear();
    }
}

/// Returns the values of the lines of a field as one.
fn joined<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut all = Vec::new();
    for value in values {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(value);
    }
    all
}
