//! The body of a stored function, by its words: whether it may write, and what it calls.

use crate::mysql::{LexerModes, TokenKind, Tokens, identifier};

/// What was seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// It may change data, other than in the session.
    pub(super) writes: bool,
    /// What stands before parentheses, in lower case.
    pub(super) calls: Vec<Box<[u8]>>,
    /// What CALL names, in lower case.
    pub(super) procedures: Vec<Box<[u8]>>,
    /// All other words and names, in lower case.
    pub(super) names: Vec<Box<[u8]>>,
}

/// Words of statements that a replica must not run. What is a function's name too counts where no
/// parenthesis follows.
const WRITING: [&[u8]; 30] = [
    b"alter",
    b"analyze",
    b"call",
    b"create",
    b"delete",
    b"drop",
    b"dumpfile",
    b"execute",
    b"flush",
    b"global",
    b"grant",
    b"import",
    b"insert",
    b"install",
    b"kill",
    b"load",
    b"lock",
    b"next",
    b"optimize",
    b"outfile",
    b"persist",
    b"previous",
    b"purge",
    b"rename",
    b"repair",
    b"replace",
    b"revoke",
    b"truncate",
    b"unlock",
    b"update",
];

/// Functions that do more than to compute.
const DOING: [&[u8]; 6] = [
    b"get_lock",
    b"lastval",
    b"nextval",
    b"release_all_locks",
    b"release_lock",
    b"setval",
];

/// Looks at every word.
pub(super) fn look(body: &[u8], modes: LexerModes) -> Found {
    let mut found = Found {
        writes: false,
        calls: Vec::new(),
        procedures: Vec::new(),
        names: Vec::new(),
    };
    let mut tokens = Tokens::new(body, modes);
    loop {
        let token = tokens.next_token();
        let written = token.span.of(body);
        match token.kind {
            TokenKind::End => return found,
            TokenKind::Broken => found.writes = true,
            TokenKind::Word | TokenKind::QuotedName => {
                let name = identifier(written).to_ascii_lowercase();
                if token.kind == TokenKind::Word && *name == *b"call" {
                    found.procedures.push(called(tokens.clone(), body));
                }
                let ahead = tokens.clone().next_token();
                if ahead.kind == TokenKind::Open {
                    found.writes |= DOING.contains(&&*name);
                    found.calls.push(name.into());
                } else {
                    found.writes |= token.kind == TokenKind::Word && WRITING.contains(&&*name);
                    found.names.push(name.into());
                }
            }
            _ => {}
        }
    }
}

/// The last part of the name that comes next.
fn called(mut tokens: Tokens<'_>, body: &[u8]) -> Box<[u8]> {
    let mut name = tokens.next_token();
    while tokens.next_token().kind == TokenKind::Dot {
        name = tokens.next_token();
    }
    let name = identifier(name.span.of(body));
    name.to_ascii_lowercase().into()
}
