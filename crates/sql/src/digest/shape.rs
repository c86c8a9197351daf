//! Hashes the pieces of a text into one number and, if requested, builds the normalized text.
//!
//! The content of parentheses is hashed separately, so that a row of the same shape as its
//! predecessor is recognized at its end and dropped.

use super::Digest;
use super::piece::{Class, Piece};
use crate::token::Word;

/// Maximum nesting depth at which parentheses are hashed separately. Deeper ones are hashed like
/// any other piece; lists are not nested that deep in practice.
const DEPTH_MAX: usize = 16;

/// Initial hash state: any number but zero. It must never change, because digests are stored in
/// files.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Replacement of a literal in a normalized text.
const LITERAL: &[u8] = b"?";

/// Output of the normalized text while the pieces are hashed.
pub(super) trait Text {
    /// Appends a piece that counts.
    fn put(&mut self, piece: Piece, written: &[u8]);
    /// Returns the current length in bytes.
    fn length(&self) -> usize;
    /// Truncates the text to `length`. `piece` becomes the last piece read.
    fn cut(&mut self, length: usize, piece: Piece);
}

/// Output that is discarded: only the number is needed.
impl Text for () {
    #[inline]
    fn put(&mut self, _: Piece, _: &[u8]) {}

    #[inline]
    fn length(&self) -> usize {
        0
    }

    #[inline]
    fn cut(&mut self, _: usize, _: Piece) {}
}

/// Output that builds a normalized text.
#[derive(Default)]
pub(super) struct Written {
    pub(super) text: Vec<u8>,
    last: Option<Piece>,
}

impl Text for Written {
    fn put(&mut self, piece: Piece, written: &[u8]) {
        if self.last.is_some_and(|last| are_apart(last, piece)) {
            self.text.push(b' ');
        }
        match piece.class {
            Class::Literal => self.text.extend_from_slice(LITERAL),
            Class::Word => {
                let lower = written.iter().map(u8::to_ascii_lowercase);
                self.text.extend(lower);
            }
            _ => self.text.extend_from_slice(written),
        }
        self.last = Some(piece);
    }

    fn length(&self) -> usize {
        self.text.len()
    }

    fn cut(&mut self, length: usize, piece: Piece) {
        self.text.truncate(length);
        self.last = Some(piece);
    }
}

/// Returns whether a blank separates two pieces in the normalized text.
fn are_apart(last: Piece, next: Piece) -> bool {
    let touch = last.span.end == next.span.start;
    match (last.class, next.class) {
        (Class::Open, _) => false,
        (_, Class::Close | Class::Comma | Class::Semicolon) => false,
        // `f(` but `in (`, and `a.b` but `@a .b`: as in the original text.
        (Class::Word | Class::Name, Class::Open) => !touch,
        (Class::Dot | Class::Mark, _) | (_, Class::Dot | Class::Mark) => !touch,
        // MySQL's lexer returns `<=` as two pieces. Two adjacent signs would begin a comment.
        (Class::Sign | Class::Operator, Class::Operator) => !touch || next.word == STAR,
        _ => true,
    }
}

const STAR: Word = Word::of("*");

/// Words after which a sign belongs to the literal and is not a subtraction.
const BEFORE_VALUES: [Word; 8] = [
    Word::of("and"),
    Word::of("between"),
    Word::of("else"),
    Word::of("or"),
    Word::of("return"),
    Word::of("select"),
    Word::of("then"),
    Word::of("when"),
];

/// Words that are literals as items of a list; elsewhere they are words (`IS NULL`).
const LITERALS_OF_LISTS: [Word; 4] = [
    Word::of("default"),
    Word::of("false"),
    Word::of("null"),
    Word::of("true"),
];

/// Role of the preceding piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// No preceding piece, or one after which a value follows.
    BeforeValue,
    /// `(` or `,`
    BeforeItem,
    Literal,
    /// A complete pair of parentheses, with the hash of its content.
    Group(u64),
    Other,
}

/// Parentheses that are still open.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    /// Hash state of the text up to and including the parenthesis.
    state: u64,
    /// Preceding group of the same list, separated from this one by a comma.
    sibling: Option<Sibling>,
}

/// Group that ended immediately before the comma.
#[derive(Debug, Clone, Copy)]
struct Sibling {
    content: u64,
    /// Hash state up to the end of the group.
    state: u64,
    length: usize,
}

/// State of the hash over the pieces of one text.
pub(super) struct Shape<T> {
    state: u64,
    out: T,
    groups: [Group; DEPTH_MAX],
    depth: usize,
    last: Last,
    /// A comma after a literal or group, or a semicolon. The next piece decides whether it counts.
    separator: Option<Piece>,
    /// A sign, which counts unless a literal follows.
    sign: Option<Piece>,
}

impl<T: Text> Shape<T> {
    pub(super) fn new(out: T) -> Self {
        Shape {
            state: SEED,
            out,
            groups: [Group::default(); DEPTH_MAX],
            depth: 0,
            last: Last::BeforeValue,
            separator: None,
            sign: None,
        }
    }

    /// Adds the next piece; `written` is its original text.
    #[inline]
    pub(super) fn take(&mut self, piece: Piece, written: &[u8]) {
        match piece.class {
            Class::Literal => self.literal(piece),
            Class::Word if self.is_literal_of_list(piece) => self.literal(Piece {
                class: Class::Literal,
                ..piece
            }),
            Class::Open => self.open(piece),
            Class::Close => self.close(piece),
            Class::Comma if matches!(self.last, Last::Literal | Last::Group(_)) => {
                self.hold_separator(piece);
            }
            Class::Semicolon => self.hold_separator(piece),
            Class::Sign if self.value_follows() => {
                if self.sign.is_some() {
                    self.flush();
                }
                self.sign = Some(piece);
            }
            _ => {
                self.flush();
                self.put(piece, written);
            }
        }
    }

    /// Returns the digest after the last piece, and the output. A semicolon at the end does not
    /// count.
    pub(super) fn end(mut self) -> (Digest, T) {
        if !self.comma_is_held() && self.sign.is_none() {
            self.separator = None;
        }
        self.flush();
        // Unclosed parentheses must not hash like closed ones.
        for group in self.groups.iter().take(self.depth).rev() {
            self.state = mix(mix(group.state, self.state), u64::from(b'('));
        }
        (Digest(self.state), self.out)
    }

    fn value_follows(&self) -> bool {
        let follows = matches!(self.last, Last::BeforeValue | Last::BeforeItem);
        follows || self.separator.is_some()
    }

    fn is_literal_of_list(&self, piece: Piece) -> bool {
        let is_item = self.last == Last::BeforeItem || self.comma_is_held();
        is_item && LITERALS_OF_LISTS.contains(&piece.word)
    }

    fn comma_is_held(&self) -> bool {
        let is_comma = |piece: &Piece| piece.class == Class::Comma;
        self.separator.as_ref().is_some_and(is_comma)
    }

    /// Holds a separator back. Repeated semicolons count as one, and leading semicolons do not
    /// count.
    fn hold_separator(&mut self, piece: Piece) {
        let is_semicolon = piece.class == Class::Semicolon;
        let is_first = self.state == SEED && self.depth == 0;
        let is_repeated = !self.comma_is_held() && self.separator.is_some();
        if is_semicolon && self.sign.is_none() && (is_first || is_repeated) {
            return;
        }
        self.flush();
        self.separator = Some(piece);
    }

    /// Adds the separator and the sign that were held back.
    #[inline]
    fn flush(&mut self) {
        if let Some(separator) = self.separator.take() {
            let written: &[u8] = match separator.class {
                Class::Semicolon => b";",
                _ => b",",
            };
            self.put(separator, written);
        }
        if let Some(sign) = self.sign.take() {
            // The word of an operator of one byte is that byte.
            self.put(sign, &[sign.word.0 as u8]);
        }
    }

    /// Adds a literal; `1, 2, -3` counts as `1`.
    fn literal(&mut self, piece: Piece) {
        self.sign = None;
        if self.comma_is_held() && self.last == Last::Literal {
            self.separator = None;
            self.out.cut(self.out.length(), piece);
            return;
        }
        self.flush();
        self.put(piece, LITERAL);
    }

    fn open(&mut self, piece: Piece) {
        let sibling = match self.last {
            Last::Group(content) if self.comma_is_held() && self.sign.is_none() => Some(Sibling {
                content,
                state: self.state,
                length: self.out.length(),
            }),
            _ => None,
        };
        self.flush();
        self.put(piece, b"(");
        if let Some(group) = self.groups.get_mut(self.depth) {
            let state = self.state;
            *group = Group { state, sibling };
            self.state = SEED;
        }
        self.depth = self.depth.saturating_add(1);
    }

    /// Closes a group; `(1, 2), (3, 4)` counts as `(1, 2)`.
    fn close(&mut self, piece: Piece) {
        self.flush();
        let Some(group) = self.pop() else {
            return self.put(piece, b")");
        };
        let content = self.state;
        self.out.put(piece, b")");
        match group.sibling {
            Some(sibling) if sibling.content == content => {
                self.state = sibling.state;
                self.out.cut(sibling.length, piece);
            }
            _ => self.state = mix(group.state, content),
        }
        self.last = Last::Group(content);
    }

    /// Removes the innermost open parentheses. Returns `None` if they are not hashed separately.
    fn pop(&mut self) -> Option<Group> {
        let depth = self.depth.checked_sub(1)?;
        self.depth = depth;
        self.groups.get(depth).copied()
    }

    fn put(&mut self, piece: Piece, written: &[u8]) {
        self.last = match piece.class {
            Class::Literal => Last::Literal,
            Class::Open | Class::Comma => Last::BeforeItem,
            Class::Sign | Class::Operator | Class::Semicolon => Last::BeforeValue,
            Class::Word if BEFORE_VALUES.contains(&piece.word) => Last::BeforeValue,
            _ => Last::Other,
        };
        self.fold(piece, written);
    }

    fn fold(&mut self, piece: Piece, written: &[u8]) {
        self.out.put(piece, written);
        self.state = match (piece.class, piece.word.0) {
            (Class::Literal, _) => mix(self.state, u64::from(b'?')),
            (Class::Word, 0) => bytes(mix(self.state, 1), written, u8::to_ascii_lowercase),
            (Class::Name, _) => bytes(mix(self.state, 2), written, u8::clone),
            (_, 0) => bytes(self.state, written, u8::clone),
            (_, word) => mix(mix(self.state, word as u64), (word >> 64) as u64),
        };
    }
}

/// Mixes a text into the state, eight bytes at a time.
fn bytes(state: u64, written: &[u8], fold: impl Fn(&u8) -> u8) -> u64 {
    written.chunks(8).fold(state, |state, piece| {
        let number = piece
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(fold(byte)));
        mix(state, number)
    })
}

/// Mixes a value into the state by folded multiplication.
#[inline]
fn mix(state: u64, value: u64) -> u64 {
    let product = u128::from(state ^ value).wrapping_mul(0x2d35_8dcc_aa6c_78a5_8bb8_4b93_962e_acc9);
    (product as u64) ^ ((product >> 64) as u64) ^ state.rotate_left(23)
}
