//! Reads the module paths in a source file: its imports, and the paths elsewhere in its code.

use std::sync::LazyLock;

use regex::Regex;

use crate::tidy::rust::{code, find_words, is_word};

const TEST_ATTRIBUTE: &str = "#[cfg(test)]";

/// A path of a `use`, and the name it has from then on (`None`: `*`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    pub(super) name: Option<String>,
}

/// The module paths in the production code of a file.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub(super) imports: Vec<Import>,
    /// Paths outside of a `use`.
    pub(super) inline: Vec<Vec<String>>,
    /// Modules declared with `#[cfg(test)] mod name;`.
    pub(super) test_modules: Vec<String>,
}

impl Paths {
    pub(super) fn of(text: &str) -> Paths {
        let mut paths = Paths::default();
        let production = paths.skip_tests(&code(text));
        let rest = paths.take_imports(&production);
        paths.inline = inline_paths(&rest);
        paths
    }

    /// Returns the code without the items that only tests have.
    fn skip_tests(&mut self, code: &str) -> String {
        let mut production = String::new();
        let mut rest = code;
        while let Some((before, from)) = rest.split_once(TEST_ATTRIBUTE) {
            let (item, after) = from.split_at(item_length(from));
            production.push_str(before);
            self.test_modules.extend(declared_module(item));
            rest = after;
        }
        production + rest
    }

    /// Reads each `use` and returns the code without them.
    fn take_imports(&mut self, code: &str) -> String {
        // `use<'a>` captures a lifetime, and `use $path` is a macro's.
        let is_of_path = |c: char| is_word(c) || c.is_whitespace() || ":*{},".contains(c);
        let mut kept = String::new();
        let mut rest = code;
        while let Some(at) = find_words(rest, "use").next() {
            let (before, from) = rest.split_at(at);
            kept.push_str(before);
            rest = &from["use".len()..];
            if let Some((tree, after)) = rest.split_once(';')
                && tree.chars().all(is_of_path)
            {
                self.add_tree(&[], tree);
                rest = after;
            }
        }
        kept + rest
    }

    fn add_tree(&mut self, prefix: &[String], tree: &str) {
        let (path, group) = match tree.split_once('{') {
            Some((path, group)) => (path, Some(group)),
            None => (tree, None),
        };
        let mut words = path.split_whitespace();
        let segments = words.next().unwrap_or_default().split("::");
        let segments = segments.filter(|segment| !segment.is_empty());
        let mut path: Vec<String> = prefix.to_vec();
        path.extend(segments.map(str::to_owned));
        if let Some(group) = group {
            for part in parts(group) {
                self.add_tree(&path, part);
            }
            return;
        }
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let alias = words.nth(1).map(str::to_owned);
        let name = alias.or_else(|| path.last().cloned());
        let name = name.filter(|name| name != "*");
        if name.is_none() {
            path.pop();
        }
        self.imports.push(Import { path, name });
    }
}

/// Splits what follows the `{` of a group, up to its `}`, at its own commas.
fn parts(group: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' => {
                parts.push(group[begin..at].trim());
                break;
            }
            ',' if depth == 0 => {
                parts.push(group[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The length of the item that `code` begins with, up to its `;` or its closing brace.
fn item_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' => {}
            _ => continue,
        }
        if depth < 0 {
            return at;
        }
        if depth == 0 && (c == ';' || c == '}') {
            return at + 1;
        }
    }
    code.len()
}

/// The name in `mod name;`.
fn declared_module(item: &str) -> Option<String> {
    let mut words = item.strip_suffix(';')?.split_whitespace().rev();
    let name = words.next()?;
    (words.next() == Some("mod")).then(|| name.to_owned())
}

fn inline_paths(code: &str) -> Vec<Vec<String>> {
    static PATH: LazyLock<Regex> = LazyLock::new(|| {
        let path = r"(?-u)\b\w+(?:::\w+)+";
        Regex::new(path).expect("a valid pattern")
    });
    let segments = |path: &str| path.split("::").map(str::to_owned).collect();
    PATH.find_iter(code)
        .map(|path| segments(path.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn imports(text: &str, expect: &[(&str, &str)]) {
        let found: Vec<_> = Paths::of(text).imports.into_iter().map(pair).collect();
        let owned = |(path, name): &(&str, &str)| ((*path).to_owned(), (*name).to_owned());
        assert_eq!(found, expect.iter().map(owned).collect::<Vec<_>>());
    }

    fn pair(import: Import) -> (String, String) {
        let name = import.name.unwrap_or_else(|| "*".to_owned());
        (import.path.join("::"), name)
    }

    #[track_caller]
    fn inline(text: &str, expect: &[&str]) {
        let paths = Paths::of(text);
        let found: Vec<_> = paths.inline.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_use_has_a_path_for_each_name() {
        imports("use crate::a::B;\n", &[("crate::a::B", "B")]);
        imports("pub(super) use super::a as b;\n", &[("super::a", "b")]);
        imports("use super::a::*;\n", &[("super::a", "*")]);
        imports(
            "use crate::{\n    a::{self, B as C, d::*},\n    e::F,\n};\n",
            &[
                ("crate::a", "a"),
                ("crate::a::B", "C"),
                ("crate::a::d", "*"),
                ("crate::e::F", "F"),
            ],
        );
        imports("trait T { fn f(&self) -> impl Copy + use<'_>; }\n", &[]);
        imports("m!(use $a; use $b::c);\nuse d::e;\n", &[("d::e", "e")]);
    }

    #[test]
    fn a_path_in_code_is_inline() {
        inline(
            "fn f(x: super::a::B) -> self::C { crate::d::<u8>() }\n",
            &["super::a::B", "self::C", "crate::d"],
        );
        inline(
            "use crate::a::B;\n// crate::c\nfn f() { \"crate::d\" }\n",
            &[],
        );
    }

    #[test]
    fn test_items_are_skipped() {
        let text = "#[cfg(test)]\nuse crate::{a::A, b};\n\
            #[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod model;\n\
            #[cfg(test)]\nmod tests {\n    use crate::c;\n    fn f() { crate::d() }\n}\n\
            use crate::e;\n";
        imports(text, &[("crate::e", "e")]);
        inline(text, &[]);
        assert_eq!(Paths::of(text).test_modules, ["model"]);
    }
}
