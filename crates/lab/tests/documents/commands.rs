//! Checks that the commands on the pages exist: `evenkeel`, its subcommands and their options.

use std::collections::HashMap;
use std::process::Command;

use evenkeel_lab::balancer::find_binary;

use crate::page::{Block, Location};

/// Languages of blocks that contain commands; the empty one is that of indented blocks.
const SHELLS: [&str; 4] = ["sh", "console", "bash", ""];

/// The output of `--help`.
pub(crate) struct Help {
    /// Help text by subcommand; the empty name is the program itself.
    texts: HashMap<String, String>,
}

impl Help {
    /// Runs `evenkeel --help`, and `--help` of each subcommand.
    pub(crate) fn read() -> Help {
        let help = |arguments: &[&str]| {
            let mut command = Command::new(find_binary().expect("a binary"));
            let output = command.args(arguments).arg("--help").output();
            String::from_utf8(output.expect("evenkeel runs").stdout).expect("text")
        };
        let own = help(&[]);
        let commands = own
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .map_while(|line| line.split_whitespace().next());
        let mut texts: HashMap<String, String> = commands
            .map(|name| (name.to_owned(), help(&[name])))
            .collect();
        // The list omits it: only packagers need it.
        texts.insert("manual".to_owned(), help(&["manual"]));
        texts.insert(String::new(), own);
        Help { texts }
    }

    /// Returns the problem of a command; `words` follow `evenkeel` in it.
    fn problem(&self, words: &[&str]) -> Option<String> {
        let name = match words.first() {
            Some(name) if !name.starts_with('-') => *name,
            _ => "",
        };
        // A placeholder, such as `evenkeel COMMAND --help`.
        if !name.is_empty() && !name.contains(char::is_lowercase) {
            return None;
        }
        let Some(text) = self.texts.get(name) else {
            return Some(format!("`evenkeel {name}` does not exist"));
        };
        let known: Vec<&str> = text
            .lines()
            .filter(|line| line.trim_start().starts_with('-'))
            .flat_map(|line| line.split([' ', ',', '=']))
            .filter(|word| word.starts_with('-'))
            .collect();
        let words = words.iter().map(|word| word.trim_matches(['[', ']']));
        let options = words.filter(|word| word.starts_with('-'));
        let mut options = options.map(|word| word.split('=').next().unwrap_or(word));
        let unknown = options.find(|option| !known.contains(option))?;
        Some(format!("`evenkeel {name}` has no option {unknown}"))
    }
}

/// Returns the problems of the commands in a block of code.
pub(crate) fn problems_of_block(block: &Block, help: &Help) -> Vec<String> {
    if !SHELLS.contains(&block.language.as_str()) {
        return Vec::new();
    }
    // The other lines of a console block are output of commands.
    let is_console = block.language == "console";
    let lines = block.lines.iter().enumerate();
    lines
        .filter(|(_, line)| !is_console || line.starts_with("$ "))
        .flat_map(|(index, line)| problems(line, &block.location.below(index), help))
        .collect()
}

/// Returns the problems of the commands in the back-ticks of a page's text.
pub(crate) fn problems_of_text(page: &str, text: &str, help: &Help) -> Vec<String> {
    let mut is_prose = true;
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_prose = !is_prose;
        } else if is_prose {
            let location = Location {
                page: page.to_owned(),
                line: index + 1,
            };
            let quoted = line.split('`').skip(1).step_by(2);
            problems.extend(quoted.flat_map(|command| self::problems(command, &location, help)));
        }
    }
    problems
}

/// Returns the problems of the commands in a line, which the shell's operators separate.
fn problems(line: &str, location: &Location, help: &Help) -> Vec<String> {
    let line = without_quoted(line);
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.trim_start_matches(['$', ' ']);
    let commands = line.split(['|', ';', '&', '(', ')']);
    commands
        .filter_map(|command| {
            let words: Vec<&str> = command.split_whitespace().collect();
            let words = match words.as_slice() {
                ["sudo", "-u", _, rest @ ..] | ["sudo", rest @ ..] => rest,
                all => all,
            };
            let (program, rest) = words.split_first()?;
            (*program == "evenkeel" && !rest.is_empty()).then_some(rest.to_vec())
        })
        .filter_map(|words| help.problem(&words))
        .map(|problem| format!("{location}: {problem}"))
        .collect()
}

/// Replaces each quoted argument by a letter: its words are not options.
fn without_quoted(line: &str) -> String {
    let mut outside = String::new();
    let mut quote = None;
    for letter in line.chars() {
        match quote {
            Some(open) if open == letter => quote = None,
            Some(_) => {}
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                outside.push('x');
            }
            None => outside.push(letter),
        }
    }
    outside
}
