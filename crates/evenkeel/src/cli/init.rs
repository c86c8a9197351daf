//! Implements `evenkeel init`: asks servers, and writes a config file, the password file and the
//! SQL of the account.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use evenkeel_config::plan::SqlProtocol;
use evenkeel_config::variables;

use super::{USAGE, password};
use crate::init::{self, AskedServer, Group, Written};

/// User if neither the command line nor the environment names one.
const DEFAULT_USER: &str = "evenkeel";

/// Arguments of `evenkeel init`.
#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Servers: host, host:port or unix:/path. Without a port, 5432 and 3306 are tried.
    #[arg(long, value_name = "SERVER", value_delimiter = ',', required = true)]
    from: Vec<String>,
    /// Account to log in with, which becomes the monitor account [default: PGUSER or MYSQL_USER,
    /// else evenkeel]. Its password is PGPASSWORD or MYSQL_PWD, else it is asked for.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Protocol of the servers, if it cannot be found out.
    #[arg(long, value_name = "PROTOCOL", value_parser = ["postgres", "mysql"])]
    protocol: Option<String>,
    /// Config file to write [default: standard output]. The password and the SQL are written beside
    /// it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long)]
    force: bool,
}

pub(super) fn init(args: &InitArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(why)) => {
            eprintln!("error: {why}");
            ExitCode::from(USAGE)
        }
        Err(Failure::Other(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    /// The command line is wrong.
    Usage(String),
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}

fn run(args: &InitArgs) -> Result<(), Failure> {
    let paths = Paths::of(args.output.as_deref());
    if !args.force
        && let Some(existing) = paths.config.as_deref().filter(|path| path.exists())
    {
        return Err(exists(existing));
    }
    let protocol = args.protocol.as_deref().map(|word| match word {
        "mysql" => SqlProtocol::Mysql,
        _ => SqlProtocol::Postgres,
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let offers = runtime.block_on(init::offers(&args.from, protocol));
    let mut offers = offers.map_err(Failure::Usage)?;
    for unreached in offers
        .iter()
        .filter_map(|server| server.offer.as_ref().err())
    {
        eprintln!("warning: {unreached}");
    }
    let mut groups = Vec::new();
    for protocol in [SqlProtocol::Postgres, SqlProtocol::Mysql] {
        let servers = init::of_protocol(&mut offers, protocol);
        if !servers.is_empty() {
            groups.push(ask_group(args, protocol, servers, &runtime)?);
        }
    }
    if groups.is_empty() {
        let why = "no server could be asked: check the addresses, and that the servers listen on \
                   them and firewalls let this machine connect";
        return Err(Failure::Other(why.to_owned()));
    }
    let written = init::write(&groups, &offers, &paths.names());
    paths.write(&written, args.force)
}

fn ask_group(
    args: &InitArgs,
    protocol: SqlProtocol,
    servers: Vec<AskedServer>,
    runtime: &tokio::runtime::Runtime,
) -> Result<Group, Failure> {
    let (variable, _) = variables(protocol);
    let user = args.user.clone().or_else(|| env::var(variable).ok());
    let user = user
        .filter(|user| !user.is_empty())
        .unwrap_or_else(|| DEFAULT_USER.to_owned());
    let password = password::password(protocol, &user)?;
    let group = runtime.block_on(init::ask(protocol, (user, password), servers));
    for problem in group.problems() {
        eprintln!("warning: {problem}");
    }
    Ok(group)
}

/// Files that are written.
struct Paths {
    /// `None`: standard output.
    config: Option<PathBuf>,
    directory: PathBuf,
    stem: String,
}

impl Paths {
    fn of(output: Option<&Path>) -> Self {
        let directory = output.and_then(Path::parent).unwrap_or(Path::new(""));
        let stem = output
            .and_then(Path::file_stem)
            .map(|stem| stem.to_string_lossy());
        Self {
            config: output.map(Path::to_owned),
            directory: directory.to_owned(),
            stem: stem.map_or_else(|| "evenkeel".to_owned(), |stem| stem.into_owned()),
        }
    }

    /// Returns the names for the texts.
    fn names(&self) -> init::Names {
        init::Names {
            config: self
                .config
                .clone()
                .unwrap_or_else(|| format!("{}.toml", self.stem).into()),
            stem: self.stem.clone(),
        }
    }

    fn write(&self, written: &Written, force: bool) -> Result<(), Failure> {
        for (name, text) in &written.private_files {
            let path = self.directory.join(name);
            if !force && path.exists() && fs::read_to_string(&path).ok().as_ref() != Some(text) {
                return Err(exists(&path));
            }
            create(&path, text, 0o600).map_err(|error| cannot_write(&path, &error))?;
            eprintln!("wrote {}", path.display());
        }
        match &self.config {
            None => io::stdout().write_all(written.config.as_bytes())?,
            Some(path) => {
                let created = create(path, &written.config, 0o640);
                created.map_err(|error| cannot_write(path, &error))?;
                eprintln!("wrote {}", path.display());
            }
        }
        for step in &written.next_steps {
            eprintln!("next: {step}");
        }
        Ok(())
    }
}

fn exists(path: &Path) -> Failure {
    Failure::Usage(format!(
        "{} exists: move it away, name another file with --output, or overwrite it with --force",
        path.display()
    ))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("cannot write {}: {error}", path.display()))
}

/// Writes a file in place of one of that name.
fn create(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}
