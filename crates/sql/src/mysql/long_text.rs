//! Reads a text that is too long to be held, in parts, and finds out whether it is only one INSERT,
//! REPLACE or UPDATE of literals. Most of such a text is within its strings.

use super::LexerModes;
use super::builtin;
use crate::facts::StatementTraits;

/// Maximum length of a word that is compared, in bytes.
const WORD_LENGTH_MAX: usize = 64;

/// Words after which the statement may do more than write literals. They are also names, of which
/// nothing more is then known.
const OTHERS: [&[u8]; 12] = [
    b"call",
    b"currval",
    b"lastval",
    b"next",
    b"nextval",
    b"previous",
    b"procedure",
    b"returning",
    b"select",
    b"setval",
    b"table",
    b"with",
];

/// Reader of one text.
#[derive(Debug)]
pub struct LongTextReader {
    modes: LexerModes,
    place: Place,
    /// Word that is being read, in lower case, up to a limit.
    word: Vec<u8>,
    last: Last,
    /// Number of open parentheses.
    depth: u32,
    has_verb: bool,
    has_columns: bool,
    /// True after VALUES or SET.
    has_values: bool,
    /// True after the semicolon at the end.
    is_over: bool,
    is_other: bool,
}

/// Place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Between,
    Word,
    Quoted(Quotes),
    /// After a backslash.
    Escaped(Quotes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quotes {
    quote: u8,
    is_name: bool,
    escapes: bool,
}

/// Last token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// A name: with a parenthesis after it, a call of any function.
    Name,
    Dot,
    Minus,
    Other,
}

impl LongTextReader {
    /// Creates a reader at the beginning of a text.
    #[must_use]
    pub fn new(modes: LexerModes) -> LongTextReader {
        LongTextReader {
            modes,
            place: Place::Between,
            word: Vec::new(),
            last: Last::Other,
            depth: 0,
            has_verb: false,
            has_columns: false,
            has_values: false,
            is_over: false,
            is_other: false,
        }
    }

    /// Reads the next part.
    pub fn read(&mut self, part: &[u8]) {
        let mut rest = part;
        while let Some((byte, after)) = rest.split_first().filter(|_| !self.is_other) {
            rest = match self.place {
                Place::Quoted(quotes) => self.quoted(quotes, rest),
                Place::Escaped(quotes) => {
                    self.place = Place::Quoted(quotes);
                    after
                }
                Place::Word if is_part(*byte) => {
                    self.add_to_word(*byte);
                    after
                }
                Place::Word => {
                    self.end_word();
                    rest
                }
                Place::Between => {
                    self.begin(*byte);
                    after
                }
            };
        }
    }

    /// Returns whether the text, which has ended, only writes literals.
    #[must_use]
    pub fn only_writes(mut self) -> bool {
        if self.place == Place::Word {
            self.end_word();
        }
        self.place == Place::Between && self.depth == 0 && self.has_values && !self.is_other
    }

    /// Reads up to the end of the quotes, or of the part.
    fn quoted<'a>(&mut self, quotes: Quotes, rest: &'a [u8]) -> &'a [u8] {
        let ends = |byte: &u8| *byte == quotes.quote || quotes.escapes && *byte == b'\\';
        let Some(at) = rest.iter().position(ends) else {
            return &[];
        };
        if rest.get(at) == Some(&quotes.quote) {
            // Doubled quotes are read as two strings, or as two names.
            self.place = Place::Between;
            self.last = if quotes.is_name {
                Last::Name
            } else {
                Last::Other
            };
        } else {
            self.place = Place::Escaped(quotes);
        }
        rest.get(at.saturating_add(1)..).unwrap_or_default()
    }

    fn add_to_word(&mut self, byte: u8) {
        // A longer word is no keyword, and no function of the server.
        if self.word.len() < WORD_LENGTH_MAX {
            self.word.push(byte.to_ascii_lowercase());
        }
    }

    /// Processes a byte between two tokens. Those of other character sets may be blanks.
    fn begin(&mut self, byte: u8) {
        if byte.is_ascii_whitespace() || byte == 0x0b {
            return;
        }
        self.is_other |= self.is_over;
        let quotes = |is_name| {
            Place::Quoted(Quotes {
                quote: byte,
                is_name,
                escapes: !is_name && !self.modes.no_backslash_escapes,
            })
        };
        match byte {
            b'\'' => self.place = quotes(false),
            b'"' => self.place = quotes(self.modes.ansi_quotes),
            b'`' => self.place = quotes(true),
            byte if is_part(byte) => {
                self.place = Place::Word;
                self.word.clear();
                self.add_to_word(byte);
            }
            byte => self.operator(byte),
        }
    }

    fn operator(&mut self, byte: u8) {
        let before = std::mem::replace(&mut self.last, Last::Other);
        match byte {
            b'(' => {
                if before == Last::Name {
                    // The table's columns, or a function.
                    self.is_other |= self.has_columns || self.has_values || self.depth > 0;
                    self.has_columns = true;
                }
                self.depth = self.depth.saturating_add(1);
            }
            b')' if self.depth > 0 => self.depth = self.depth.saturating_sub(1),
            b',' | b'=' | b'+' | b'*' | b'<' | b'>' | b'!' | b'%' => {}
            b'.' => self.last = Last::Dot,
            // Two of them begin a comment.
            b'-' if before != Last::Minus => self.last = Last::Minus,
            b';' if self.depth == 0 => self.is_over = true,
            _ => self.is_other = true,
        }
    }

    fn end_word(&mut self) {
        self.place = Place::Between;
        let before = std::mem::replace(&mut self.last, Last::Other);
        let word = &*self.word;
        if !self.has_verb {
            self.has_verb = true;
            self.is_other |= !matches!(word, b"insert" | b"replace" | b"update");
            return;
        }
        self.is_other |= OTHERS.contains(&word);
        self.has_values |= before != Last::Dot && matches!(word, b"values" | b"value" | b"set");
        let is_harmless = before != Last::Dot
            && builtin::is_builtin(word)
            && builtin::traits(word) == StatementTraits::NONE
            && !builtin::may_be_stored(word, self.modes);
        if !is_harmless {
            self.last = Last::Name;
        }
    }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_writes(text: &str, modes: LexerModes) -> bool {
        let read = |length: usize| {
            let mut reader = LongTextReader::new(modes);
            let parts = text.as_bytes().chunks(length);
            parts.for_each(|part| reader.read(part));
            reader.only_writes()
        };
        let at_once = read(text.len().max(1));
        assert_eq!(read(1), at_once, "{text}");
        assert_eq!(read(3), at_once, "{text}");
        at_once
    }

    #[test]
    fn a_write_of_literals_is_known_however_it_is_cut() {
        for text in [
            "INSERT INTO t VALUES (1, 'a', -2.5e3, NULL, x'00', _binary 'b'), (DEFAULT, 'c'''\n)",
            "insert ignore into `d`.`t` (`a`, b) values ('it''s \\' \" ; @a', 0xff);\n",
            "replace t set a = 'x', b = now(), c = \"y\\\"\"",
            "INSERT INTO t (a) VALUES ('x') ON DUPLICATE KEY UPDATE a = VALUES(a), n = n + 1",
            "update t set a = 'x' where id = 5 and b in ('y', 'z')",
        ] {
            assert!(only_writes(text, LexerModes::default()), "{text}");
        }
        let ansi = LexerModes {
            ansi_quotes: true,
            no_backslash_escapes: true,
            ..LexerModes::default()
        };
        assert!(only_writes("insert into \"t\" (\"a\") values ('\\')", ansi));
    }

    #[test]
    fn a_text_that_may_do_more_is_not_known() {
        for text in [
            "",
            "select 'x'",
            "insert into t values ('x'",
            "insert into t values ('x)",
            "insert into t values (@a := 'x')",
            "insert into t values (get_lock('x', 1))",
            "insert into t values (f('x'))",
            "insert into t values (`f`('x'))",
            "insert into t (a) values ('x', d.now())",
            "insert into t values (last_insert_id(5), 'x')",
            "insert into t values (next value for s, 'x')",
            "insert into t values ('x'); set @a = 1",
            "insert into t values ('x'); ; ",
            "insert into t values ('x') -- comment",
            "insert into t values ('x') # comment",
            "insert into t values ('x' /*! , f() */)",
            "insert into t (a) select f('x')",
            "insert into t values ('x') returning f(a)",
            "insert into t values ('x', ?)",
            "insert into t values ('x', ä)",
            "insert into tä values (f('x'))",
            "delete from t where a = 'x'",
        ] {
            assert!(!only_writes(text, LexerModes::default()), "{text}");
        }
        let ansi = LexerModes {
            ansi_quotes: true,
            ..LexerModes::default()
        };
        assert!(!only_writes("insert into t values (\"f\"('x'))", ansi));
    }
}
