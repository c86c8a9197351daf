//! Masks secrets in the lines that messages show.

/// Parts of key names that indicate a secret, also in misspelled keys.
const WORDS: [&str; 7] = ["pass", "pwd", "token", "secret", "psw", "verifier", "md5"];

/// Returns the text with the values of such keys masked. Positions of bytes and characters do not
/// change.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('=') {
        let (before, after) = rest.split_at(at + 1);
        out.push_str(before);
        rest = after;
        if is_secret(key_before(before)) || is_hash(rest) {
            let end = value_end(rest);
            out.extend(rest[..end].chars().map(cover));
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// Returns the last key of a text that ends with `=`.
fn key_before(text: &str) -> &str {
    let text = text.trim_end_matches(['=', ' ', '\t', '"', '\'']);
    text.rsplit(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'))
        .next()
        .unwrap_or(text)
}

fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    !key.ends_with("_file") && WORDS.iter().any(|word| key.contains(word))
}

/// Returns whether a value is a hash of a password, as htpasswd writes them.
fn is_hash(value: &str) -> bool {
    let value = value.trim_start_matches([' ', '\t', '"', '\'']);
    ["$2", "$apr1$", "{SHA}"]
        .iter()
        .any(|start| value.starts_with(start))
}

/// Returns the end of a value: its closing quotes, or the end of the line.
fn value_end(text: &str) -> usize {
    let start = text.len() - text.trim_start_matches([' ', '\t']).len();
    let value = &text[start..];
    let line_end = text.find('\n').unwrap_or(text.len());
    for quotes in ["\"\"\"", "'''"] {
        if let Some(inner) = value.strip_prefix(quotes) {
            return inner.find(quotes).map_or(text.len(), |at| start + at + 6);
        }
    }
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote) {
            return closing(inner, quote).map_or(line_end, |at| (start + at + 2).min(line_end));
        }
    }
    line_end
}

fn closing(inner: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    inner.char_indices().find_map(|(at, c)| {
        let closes = c == quote && !escaped;
        escaped = c == '\\' && !escaped && quote == '"';
        closes.then_some(at)
    })
}

/// Returns a replacement with the same byte length and width. Characters that reveal nothing stay.
fn cover(c: char) -> char {
    match c.len_utf8() {
        1 if c.is_whitespace() || c == '"' || c == '\'' => c,
        1 => '*',
        2 => '·',
        3 => '•',
        _ => '🔒',
    }
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn secrets_are_covered_and_nothing_moves() {
        let check = |text: &str, expected: &str| {
            assert_eq!(masked(text), expected);
            assert_eq!(masked(text).len(), text.len());
        };
        check(
            "password = \"a\\\"bc\" # x\ny = 1",
            "password = \"**\"**\" # x\ny = 1",
        );
        check(
            "m = { user = \"u\", passwrd = 'abc', z = 1 }",
            "m = { user = \"u\", passwrd = '***', z = 1 }",
        );
        check("token = 'é€😀x'", "token = '·•🔒*'");
        check(
            "password = \"open\nuser = \"x\"",
            "password = \"****\nuser = \"x\"",
        );
        check(
            "password = \"\"\"a\nb\"\"\"\nuser = \"x\"",
            "password = \"\"\"*\n*\"\"\"\nuser = \"x\"",
        );
        check("ann = \"$2y$05$x\"", "ann = \"********\"");
        check("password_file = \"p\"", "password_file = \"p\"");
        check("verifier = 'S$1:x'", "verifier = '*****'");
        check("md5 = 'md5x'", "md5 = '****'");
        check("\"password\" = \"p=q\"", "\"password\" = \"***\"");
    }
}
