//! Checks that no struct has many booleans, of which few combinations are possible states.

use super::rust::{code, find_words, is_word, line_of};
use super::{Problem, Tree};

/// Booleans of one struct that a reader can still combine.
const FLAGS_MAX: usize = 5;

/// Types that hold one boolean.
const FLAG_TYPES: [&str; 3] = ["bool", "Cell<bool>", "AtomicBool"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    tree.ending(".rs")
        .flat_map(|(path, text)| check_file(path, text))
        .collect()
}

fn check_file(path: &str, text: &str) -> Vec<Problem> {
    let code = code(text);
    let structs = find_words(&code, "struct").filter_map(|at| {
        let (name, fields) = fields(&code[at..])?;
        let flags = fields.iter().filter(|field| is_flag(field)).count();
        (flags > FLAGS_MAX).then(|| {
            let what = format!(
                "`{name}` has {flags} booleans, over {FLAGS_MAX}: give its states an enum, whose \
                 variants carry their data"
            );
            Problem::new(path, line_of(&code, at), what)
        })
    });
    structs.collect()
}

/// Returns the name and the fields of the struct that begins here; `None`: it has no named fields.
fn fields(code: &str) -> Option<(&str, Vec<&str>)> {
    let rest = code.strip_prefix("struct")?.trim_start();
    let name = &rest[..rest.find(|c| !is_word(c))?];
    let end = rest.find([';', '(', '{'])?;
    let body = rest[end..].strip_prefix('{')?;
    let (mut fields, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in body.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '}' if depth == 0 => {
                fields.push(&body[begin..at]);
                return Some((name, fields));
            }
            ')' | ']' | '}' => depth -= 1,
            '>' if !body[..at].ends_with('-') => depth -= 1,
            ',' if depth == 0 => {
                fields.push(&body[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn is_flag(field: &str) -> bool {
    let kind = field.rsplit_once(": ").map(|(_, kind)| kind.trim());
    kind.is_some_and(|kind| FLAG_TYPES.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    /// TO SEE THIS RED: count `bool` only.
    #[test]
    fn a_struct_of_many_booleans_is_found() {
        let many = "//! A file.\n\n/// A thing.\npub(super) struct Many<'a> {\n    a: bool,\n    \
                    /// Text, with a comma: bool.\n    pub(super) b: bool,\n    c: Cell<bool>,\n    \
                    name: &'a str,\n    d: AtomicBool,\n    #[serde(default)]\n    e: bool,\n    \
                    f: bool,\n}\n";
        let found = ("a.rs:4", "`Many` has 6 booleans");
        assert_found(check, &[("a.rs", many)], &[found]);
        let few = many.replace("    f: bool,\n", "    f: fn(bool, bool) -> bool,\n");
        assert_found(check, &[("a.rs", &few)], &[]);
    }

    #[test]
    fn booleans_of_other_items_do_not_count() {
        let text = "struct A(bool, bool, bool, bool, bool, bool);\nstruct B;\n\
                    fn f(a: bool, b: bool, c: bool, d: bool, e: bool, f: bool) {}\n\
                    struct C {\n    a: Vec<(bool, bool)>,\n    b: Option<bool>,\n}\n";
        assert_found(check, &[("a.rs", text)], &[]);
    }
}
