//! What functions in languages other than SQL's keep in the server process from call to call, where
//! the next session's calls find it: no statement takes that away.

use crate::token::Span;

use super::body::words;

/// Whether code in that language may keep anything. It says so too often rather than too seldom.
pub(super) fn keeps(language: &str, code: &[u8]) -> bool {
    let kept: &[&[u8]] = match language {
        "plperl" | "plperlu" => return keeps_in_perl(code),
        "pltcl" | "pltclu" => &[
            b"GD",
            b"global",
            b"namespace",
            b"proc",
            b"upvar",
            b"variable",
        ],
        "plv8" | "pljs" => return keeps_in_javascript(code),
        _ => &[b"GD", b"SD", b"global", b"globals", b"setattr", b"environ"],
    };
    let mut words = words(code);
    words.any(|word| kept.contains(&word.of(code)))
        || language.starts_with("pltcl") && code.windows(3).any(|part| part == b" ::")
}

/// `%_SHARED`, and every variable that is not the function's own: without `my` it is one of the
/// whole interpreter.
fn keeps_in_perl(code: &[u8]) -> bool {
    let own = own_of_perl(code);
    let mut last: &[u8] = b"";
    for word in words(code) {
        let name = word.of(code);
        let before = written_before(code, word);
        let is_variable = match before.last() {
            Some(b'$') => true,
            Some(b'@') => !before
                .iter()
                .rev()
                .nth(1)
                .is_some_and(u8::is_ascii_alphanumeric),
            Some(b'%') => !is_format(name),
            Some(b'{') => matches!(before.iter().rev().nth(1), Some(b'$' | b'@' | b'%')),
            _ => false,
        };
        let is_defined = matches!(last, b"sub") && before.ends_with(b" ");
        if name == b"_SHARED" || is_defined || is_variable && is_kept_in_perl(code, word, &own) {
            return true;
        }
        last = name;
    }
    false
}

/// Whether it may stand behind the `%` of a format, as in `%s`, `%5d`, `%lu`.
fn is_format(name: &[u8]) -> bool {
    let is_number = name.first().is_some_and(u8::is_ascii_digit);
    is_number || name.len() <= 2 && name.iter().all(|byte| b"bcdeEfgGiloqsuvxX".contains(byte))
}

fn is_kept_in_perl(code: &[u8], word: Span, own: &[&[u8]]) -> bool {
    /// What every call has of its own, or nobody can keep anything in.
    const OF_CALL: [&[u8]; 6] = [b"_", b"_TD", b"a", b"b", b"ENV", b"ARGV"];
    let name = word.of(code);
    let behind = code.get(word.end as usize..).unwrap_or_default();
    let is_number = name.iter().all(u8::is_ascii_digit);
    behind.starts_with(b"::") || !is_number && !OF_CALL.contains(&name) && !own.contains(&name)
}

/// The names behind `my` and `local`: `my $a`, `my ($a, @b)`.
fn own_of_perl(code: &[u8]) -> Vec<&[u8]> {
    let mut own = Vec::new();
    for word in words(code).filter(|word| matches!(word.of(code), b"my" | b"local")) {
        let behind = code.get(word.end as usize..).unwrap_or_default();
        let behind = behind.trim_ascii_start();
        let end = match behind.first() {
            Some(b'(') => behind.iter().position(|byte| *byte == b')'),
            _ => behind.iter().position(|byte| b"=;,)".contains(byte)),
        };
        let declared = behind.get(..end.unwrap_or(behind.len()));
        let declared = declared.unwrap_or_default();
        let names: Vec<Span> = words(declared).collect();
        let names = match behind.first() {
            Some(b'(') => names.as_slice(),
            _ => names.get(..1).unwrap_or_default(),
        };
        own.extend(names.iter().map(|name| name.of(declared)));
    }
    own
}

/// The global object, and what is assigned to fields of `plv8`.
fn keeps_in_javascript(code: &[u8]) -> bool {
    words(code).any(|word| match word.of(code) {
        b"globalThis" | b"this" => true,
        _ => {
            let behind = code.get(word.end as usize..).unwrap_or_default();
            let behind = behind.trim_ascii_start();
            let is_assigned = behind.starts_with(b"=") && !behind.starts_with(b"==");
            is_assigned && written_before(code, word).ends_with(b"plv8.")
        }
    })
}

fn written_before(code: &[u8], word: Span) -> &[u8] {
    code.get(..word.start as usize).unwrap_or_default()
}
