//! Reads the saved state of a stopped Galera node: its last position.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result, bail};

/// A position in the history of a cluster, such as `5f0…:42`; a new node has none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) text: String,
    pub(super) number: i64,
}

/// Returns the position in the node's data directory. After a crash, the command `recovery` reads
/// it from InnoDB, which takes a second.
pub(super) fn position(
    data: &Path,
    recovery: impl FnOnce() -> io::Result<Command>,
) -> Result<Option<Position>> {
    let Ok(state) = fs::read_to_string(data.join("grastate.dat")) else {
        return Ok(None);
    };
    let (uuid, number) = (field(&state, "uuid:"), field(&state, "seqno:"));
    if let Some(known) = parse(&format!("{uuid}:{number}")) {
        return Ok(Some(known));
    }
    let output = recovery()
        .and_then(|mut command| command.output())
        .context("cannot run mariadbd --wsrep-recover")?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let found = printed
        .lines()
        .find_map(|line| Some(line.split_once("Recovered position: ")?.1));
    let Some(found) = found else {
        let errors: Vec<&str> = printed
            .lines()
            .filter(|line| line.contains("ERROR"))
            .collect();
        bail!(
            "mariadbd --wsrep-recover reported no position: {}",
            errors.join("\n")
        )
    };
    Ok(parse(found))
}

/// Marks the node as safe to bootstrap its cluster.
pub(super) fn allow_founding(data: &Path) -> Result<()> {
    let path = data.join("grastate.dat");
    if let Ok(state) = fs::read_to_string(&path) {
        let state = state.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
        fs::write(&path, state)?;
    }
    Ok(())
}

fn field<'a>(state: &'a str, name: &str) -> &'a str {
    let mut lines = state.lines();
    let value = lines.find_map(|line| line.strip_prefix(name));
    value.unwrap_or_default().trim()
}

/// Returns `None` for positions that mean "unknown".
fn parse(text: &str) -> Option<Position> {
    let number = text.trim().rsplit_once(':')?.1.parse().ok()?;
    (number >= 0).then(|| Position {
        text: text.trim().to_owned(),
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_crashed_has_no_position_in_its_file() {
        let state = "version: 2.1\nuuid:    9d6a\nseqno:   -1\nsafe_to_bootstrap: 0\n";
        assert_eq!(field(state, "uuid:"), "9d6a");
        assert_eq!(parse(&format!("9d6a:{}", field(state, "seqno:"))), None);
        assert_eq!(parse("9d6a:42").expect("a position").number, 42);
    }
}
