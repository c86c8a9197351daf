//! Reads passwords from the environment, or from the terminal without an echo. A command line would
//! show them to every user of the machine.

use std::env;
use std::io::{self, BufRead, IsTerminal, Write};

use evenkeel_config::plan::SqlProtocol;
use evenkeel_config::variables;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Returns the password of an account: from the environment, else from the terminal. Empty if there
/// is neither.
pub(super) fn password(protocol: SqlProtocol, user: &str) -> io::Result<String> {
    let (_, variable) = variables(protocol);
    match env::var(variable) {
        Ok(password) => Ok(password),
        Err(_) if io::stdin().is_terminal() => ask(&format!(
            "Password of {user} ({}), empty for none: ",
            protocol.name()
        )),
        Err(_) => Ok(String::new()),
    }
}

/// Reads a line from the terminal without an echo.
fn ask(prompt: &str) -> io::Result<String> {
    let stdin = io::stdin();
    eprint!("{prompt}");
    io::stderr().flush()?;
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    eprintln!();
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
