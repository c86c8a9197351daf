//! Controls labs that run in other terminals: lists their servers, injects and repairs faults by
//! name.
//!
//! Each lab listens on a Unix socket in its own directory, which is removed with it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use evenkeel_lab::{Lab, Promotion, Server, home, own_uid};

use crate::{row, table};

const SOCKET: &str = "control";

/// A server of a running lab.
#[derive(Args)]
pub(crate) struct Target {
    /// The server's name, as `evenkeel-lab list` shows it.
    name: String,
    /// The lab, where several have a server of this name: the end of its directory's name, as
    /// `evenkeel-lab list` shows it.
    #[arg(long)]
    lab: Option<String>,
}

/// A server of a running lab, and for how long.
#[derive(Args)]
pub(crate) struct Delayed {
    #[command(flatten)]
    target: Target,
    /// Milliseconds.
    lag_ms: u64,
}

/// Answers commands for this lab until the process ends.
pub(crate) fn serve(lab: &Arc<Lab>) -> Result<()> {
    let socket = lab.path().join(SOCKET);
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
    let lab = Arc::downgrade(lab);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Some(lab) = lab.upgrade() else { return };
            let _ = answer(&lab, stream);
        }
    });
    Ok(())
}

/// Sends one command to the lab that has the server.
pub(crate) fn send_command(verb: &str, target: &Target) -> Result<ExitCode> {
    let name = &target.name;
    let socket = socket_of(target)?;
    let reply = query_lab(&socket, &format!("{verb} {name}"))?;
    let Some(done) = reply.strip_prefix("ok ") else {
        bail!("{}", reply.trim_end())
    };
    print!("{done}");
    Ok(ExitCode::SUCCESS)
}

/// Returns the socket of the only matching lab. An ambiguous name is an error: a fault in the wrong
/// lab would be worse.
fn socket_of(target: &Target) -> Result<PathBuf> {
    let name = &target.name;
    let mut holders = Vec::new();
    for socket in sockets() {
        let is_meant = target
            .lab
            .as_ref()
            .is_none_or(|lab| lab_name(&socket) == *lab);
        // A lab that ends in the meantime has no servers.
        let names = query_lab(&socket, "names").unwrap_or_default();
        if is_meant && names.lines().any(|known| known == name) {
            holders.push(socket);
        }
    }
    if let [only] = &holders[..] {
        return Ok(only.clone());
    }
    let labs: Vec<String> = holders.iter().map(|socket| lab_name(socket)).collect();
    match &target.lab {
        _ if !labs.is_empty() => bail!(
            "several labs have a server {name:?}, choose one with --lab {}",
            labs.join(" or --lab ")
        ),
        Some(lab) => {
            bail!("no running lab {lab:?} of yours has a server {name:?}; see `evenkeel-lab list`")
        }
        None => bail!("no running lab of yours has a server {name:?}; see `evenkeel-lab list`"),
    }
}

/// Returns the lab's name: `x7Gq2T` for `evenkeel-lab-x7Gq2T`.
fn lab_name(socket: &Path) -> String {
    let directory = socket.parent().and_then(Path::file_name);
    let directory = directory.unwrap_or_default().to_string_lossy();
    let end = directory.rsplit('-').next();
    end.unwrap_or_default().to_owned()
}

/// Delays a replica.
pub(crate) fn delay(delayed: &Delayed) -> Result<ExitCode> {
    send_command(&format!("lag:{}", delayed.lag_ms), &delayed.target)
}

/// Prints the servers of all labs of this user.
pub(crate) fn list() -> Result<ExitCode> {
    let sockets = sockets();
    if sockets.is_empty() {
        bail!(
            "no lab of yours is running on this machine; start one with `evenkeel-lab up \
             mariadb`"
        );
    }
    for socket in sockets {
        let servers = query_lab(&socket, "list")?;
        let lab = lab_name(&socket);
        // The reader may close the pipe early: `list | head`.
        if write!(std::io::stdout(), "LAB {lab}\n{servers}").is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats the servers as a table.
pub(crate) fn server_table(servers: &[Server]) -> String {
    let mut rows = vec![row!["SERVER", "ROLE", "ADDRESS", "PID", "CONNECT"]];
    for server in servers {
        let pid = server
            .pid()
            .map_or("not running".to_owned(), |pid| pid.to_string());
        rows.push(row![
            server.name,
            server.role(),
            server.address,
            pid,
            server.connect_command()
        ]);
    }
    table::columns(&rows)
}

fn answer(lab: &Lab, stream: UnixStream) -> Result<()> {
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let reply = match line.trim().split_once(' ') {
        None if line.trim() == "names" => names(lab),
        None => server_table(&lab.servers()),
        Some((verb, name)) => match run_command(lab, verb, name) {
            Ok(done) => format!("ok {name}: {done}\n"),
            Err(error) => format!("{error:#}\n"),
        },
    };
    Ok((&stream).write_all(reply.as_bytes())?)
}

fn names(lab: &Lab) -> String {
    lab.servers()
        .iter()
        .map(|server| format!("{}\n", server.name))
        .collect()
}

/// Runs a command and returns a description of the result.
fn run_command(lab: &Lab, verb: &str, name: &str) -> Result<String> {
    let server = lab
        .server(name)
        .with_context(|| format!("no server {name:?}"))?;
    let may_be_dead = ["start", "rejoin", "fail-over", "cut-off", "join-again"];
    if !may_be_dead.contains(&verb) && !server.is_running() {
        bail!("{name} is not running");
    }
    let mut done = format!("{verb} done");
    match verb {
        "kill" => server.kill()?,
        "stop" => server.stop()?,
        "start" => server.start()?,
        "freeze" => server.freeze()?,
        "thaw" => server.thaw()?,
        "promote" => done = describe_promotion(&lab.promote(&server)?),
        "fail-over" => done = describe_promotion(&lab.fail_over(&server)?),
        "demote" => lab.demote(&server).map(|_| ())?,
        "rejoin" => lab.rejoin(&server)?,
        "stop-replication" => server.stop_replication()?,
        "start-replication" => server.start_replication()?,
        "cut-off" => server.cut_off()?,
        "join-again" => server.join_again()?,
        _ => match verb.split_once(':') {
            Some(("lag", lag_ms)) => server.lag(Duration::from_millis(lag_ms.parse()?))?,
            _ => bail!("unknown command {verb:?}"),
        },
    }
    Ok(done)
}

/// Formats a change of primary in one line.
fn describe_promotion(change: &Promotion) -> String {
    let without = change
        .demoted_at
        .and_then(|demoted| change.writable_at.duration_since(demoted).ok())
        .map_or("the old primary was unreachable".to_owned(), |gap| {
            format!("{} ms after the old primary stopped", gap.as_millis())
        });
    let followers = if change.followers.is_empty() {
        "no replica".to_owned()
    } else {
        change.followers.join(", ")
    };
    format!(
        "{} is primary ({without}), followed by {followers}",
        change.primary
    )
}

fn query_lab(socket: &Path, line: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{line}")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// Returns the sockets of this user's labs that answer.
fn sockets() -> Vec<PathBuf> {
    let entries = fs::read_dir(home()).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("evenkeel-"))
        .map(|entry| entry.path().join(SOCKET))
        .filter(|socket| fs::metadata(socket).is_ok_and(|meta| meta.uid() == own_uid()))
        .filter(|socket| UnixStream::connect(socket).is_ok())
        .collect()
}
