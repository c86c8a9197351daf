//! Finds texts that only begin or stop to listen on channels.

use super::lexer::Tokens;
use crate::name::identifier;
use crate::token::TokenKind;
use crate::token::words as w;

/// LISTEN or UNLISTEN of channels, in a text of nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelCall {
    /// Action on the channels.
    pub action: ChannelAction,
    /// One channel, or those of a block of code.
    pub channels: Vec<Channel>,
    /// Tag with which the server reports that the statement is complete.
    pub tag: &'static str,
}

/// Statement about a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelAction {
    /// LISTEN
    Listen,
    /// UNLISTEN
    Unlisten,
}

/// Channel in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Name for the server, in a UTF-8 database.
    pub name: Box<[u8]>,
    /// Name as written, a single token.
    pub written: Box<[u8]>,
}

/// Returns the call if the text is one statement of this kind, or a `DO` block of nothing else.
/// `UNLISTEN *` is none.
#[must_use]
pub fn channel_call(text: &[u8]) -> Option<ChannelCall> {
    if !may_be_call(text) {
        return None;
    }
    // Outside of a block in dollars, such a text has no string.
    let mut tokens = Tokens::new(text, false);
    let first = tokens.next_token();
    if !first.is(w::DO) {
        let (call, mut tokens) = statement(text, Tokens::new(text, false))?;
        return ends(&mut tokens).then_some(call);
    }
    let code = tokens.next_token();
    (code.kind == TokenKind::String).then_some(())?;
    let rest = code.span.of(text).strip_prefix(b"$")?;
    ends(&mut tokens).then_some(())?;
    let delimiter = memchr::memchr(b'$', rest)?.checked_add(1)?;
    let code = rest.get(delimiter..rest.len().checked_sub(delimiter.checked_add(1)?)?)?;
    block(code)
}

/// Reads `BEGIN LISTEN a; LISTEN b; END`.
fn block(code: &[u8]) -> Option<ChannelCall> {
    let mut tokens = Tokens::new(code, false);
    tokens.next_token().is(w::BEGIN).then_some(())?;
    let (mut call, mut tokens) = statement(code, tokens)?;
    loop {
        if tokens.clone().next_token().is(w::END) {
            tokens.next_token();
            call.tag = "DO";
            return ends(&mut tokens).then_some(call);
        }
        let (next, behind) = statement(code, tokens)?;
        if next.action != call.action {
            return None;
        }
        call.channels.extend(next.channels);
        tokens = behind;
    }
}

/// Reads a statement up to a semicolon or the end of the text.
fn statement<'a>(text: &[u8], mut tokens: Tokens<'a>) -> Option<(ChannelCall, Tokens<'a>)> {
    let (word, name) = (tokens.next_token(), tokens.next_token());
    let is_plain = matches!(name.kind, TokenKind::Word | TokenKind::QuotedName);
    let (action, tag) = match word.word {
        w::LISTEN => (ChannelAction::Listen, "LISTEN"),
        w::UNLISTEN => (ChannelAction::Unlisten, "UNLISTEN"),
        _ => return None,
    };
    let channel = Channel::read(name.span.of(text)).filter(|_| is_plain)?;
    let end = tokens.next_token();
    matches!(end.kind, TokenKind::Semicolon | TokenKind::End).then_some(())?;
    let channels = vec![channel];
    Some((
        ChannelCall {
            action,
            channels,
            tag,
        },
        tokens,
    ))
}

/// Returns whether nothing but semicolons follows.
fn ends(tokens: &mut Tokens<'_>) -> bool {
    loop {
        match tokens.next_token().kind {
            TokenKind::Semicolon => {}
            kind => return kind == TokenKind::End,
        }
    }
}

impl Channel {
    /// Returns the channel for a name as written. `None`: it is not UTF-8.
    fn read(written: &[u8]) -> Option<Channel> {
        let mut name = identifier(written).into_owned();
        if let Err(error) = std::str::from_utf8(&name) {
            // The server does not cut within a character.
            if error.error_len().is_some() {
                return None;
            }
            name.truncate(error.valid_up_to());
        }
        Some(Channel {
            name: name.into(),
            written: written.into(),
        })
    }
}

/// Returns false for most texts, after a few bytes.
fn may_be_call(text: &[u8]) -> bool {
    // A comment may precede the first word.
    matches!(
        text.trim_ascii_start().first(),
        Some(b'l' | b'L' | b'u' | b'U' | b'd' | b'D' | b'-' | b'/')
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tag, the action and the channels as written.
    fn call(text: &str) -> Option<String> {
        let call = channel_call(text.as_bytes())?;
        let written = call.channels.iter().map(|one| &*one.written);
        let written: Vec<_> = written.map(String::from_utf8_lossy).collect();
        Some(format!(
            "{} {:?} {}",
            call.tag,
            call.action,
            written.join(" ")
        ))
    }

    #[test]
    fn a_text_of_nothing_else_is_found_with_its_channels() {
        for (text, expected) in [
            ("listen a", "LISTEN Listen a"),
            ("LISTEN \"A b\";", "LISTEN Listen \"A b\""),
            ("/* job */ Listen a -- b\n ; ;", "LISTEN Listen a"),
            ("unlisten a", "UNLISTEN Unlisten a"),
            ("UNLISTEN \"*\"", "UNLISTEN Unlisten \"*\""),
            ("DO $$BEGIN LISTEN \"a.b\"; END$$", "DO Listen \"a.b\""),
            (
                "do $x$ begin listen a;\n listen b; end; $x$;",
                "DO Listen a b",
            ),
            ("DO $$BEGIN UNLISTEN a; END$$", "DO Unlisten a"),
        ] {
            assert_eq!(call(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "unlisten *",
            "listen a; select 1",
            "listen a; listen b",
            "select 1; listen a",
            "listen",
            "listen a b",
            "listen a.b",
            "listen 'a'",
            "listen U&\"a\"",
            "listen \"a",
            "update a set b = 1",
            "lock a",
            "",
            "do $$begin listen a; unlisten b; end$$",
            "do $$begin listen a; perform 1; end$$",
            "do $$begin listen a$$",
            "do $$begin end$$",
            "do $$begin listen a; end$$; select 1",
            "do $$begin listen a; end$$ language plpgsql",
            "do 'begin listen a; end'",
            "do $",
            "do $$",
        ] {
            assert_eq!(call(text), None, "{text}");
        }
    }

    #[test]
    fn a_channel_is_folded_and_cut_as_by_the_server() {
        let long = "x".repeat(62);
        for (written, name) in [
            ("Jobs", "jobs".to_owned()),
            ("\"Jobs\"", "Jobs".to_owned()),
            ("\"a\"\"B\"", "a\"B".to_owned()),
            ("GRÖSSE", "grÖsse".to_owned()),
            (&*format!("{long}xyz"), format!("{long}x")),
            (&*format!("\"{long}xyz\""), format!("{long}x")),
            (&*format!("{long}ä"), long.clone()),
        ] {
            let channel = Channel::read(written.as_bytes()).unwrap();
            assert_eq!(*channel.name, *name.as_bytes());
        }
        assert_eq!(Channel::read(b"\xff"), None);
    }
}
