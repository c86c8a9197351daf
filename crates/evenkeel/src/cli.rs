//! The command line: what can be asked for, and which room does it.

mod ask;
mod check;
mod events;
mod explain;
mod manual;
mod pools;
mod run;
mod table;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// A wrong command line; clap uses the same number.
const USAGE: u8 = 2;

/// Keeps the load level: a balancer in front of databases, web servers and any TCP.
#[derive(Debug, Parser)]
#[command(
    name = "evenkeel",
    version = env!("EVENKEEL_VERSION"),
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Balance: with a file, or with --listen and --to for one service without a file.
    Run(RunArgs),
    /// Check a config file, and the files that it names, without starting anything.
    Check(CheckArgs),
    /// Show the running process: services, servers, sessions, differences from the file.
    Status(StatusArgs),
    /// Have the running process read its file again; a wrong file changes nothing.
    Reload(Where),
    /// No new clients for a server; its sessions may finish within a limit.
    Drain(DrainArgs),
    /// Take new clients on a drained server again.
    Undrain(ServerArgs),
    /// Give a server another weight, until the process ends.
    Weight(WeightArgs),
    /// Name the server that takes the writes, where the servers themselves leave it open.
    Primary(PrimaryArgs),
    /// Show what changed: states, roles, primaries, config, commands.
    Events(EventsArgs),
    /// Show the pools of a service that speaks PostgreSQL or MySQL, and what its users did.
    Pools(pools::ServiceArgs),
    /// Show the clients of such a service: what each does, where, since when.
    Clients(pools::ServiceArgs),
    /// Show the statements of such a service, without their literals, and what each took.
    Digests(pools::ServiceArgs),
    /// Say where a statement would go and why: to the primary, or to a replica.
    Explain(explain::ExplainArgs),
    /// Have clients wait, until nothing runs at the servers; `resume` ends it.
    Pause(pools::PauseArgs),
    /// End a pause.
    Resume(pools::DatabaseArgs),
    /// Close each server connection as soon as nobody uses it; new ones open as they are needed.
    Reconnect(pools::DatabaseArgs),
    /// Cancel what a client does, and end it.
    Kill(pools::KillArgs),
    /// Have a new process take over without a pause; this one lets its sessions finish.
    Upgrade(upgrade::UpgradeArgs),
    /// Write the man pages and the completions of shells into a directory.
    #[command(hide = true)]
    Manual(manual::ManualArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The config file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["listen", "to", "balance", "admin", "socket"]
    )]
    config: Option<PathBuf>,
    /// Where clients connect: tcp://127.0.0.1:3306, or tcp://*:3306 for all addresses.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<String>,
    /// The servers: 10.0.0.1:3306,10.0.0.2:3306.
    #[arg(
        long,
        value_name = "SERVER",
        value_delimiter = ',',
        requires = "listen"
    )]
    to: Vec<String>,
    /// How to choose a server; round-robin when nothing is said.
    #[arg(long, value_name = "ALGORITHM", requires = "listen")]
    balance: Option<String>,
    /// Status page and API, or "off"; 127.0.0.1:9000 when nothing is said.
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    admin: Option<String>,
    /// The control socket that `status`, `drain` and the others use.
    #[arg(long, value_name = "PATH", requires = "listen")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The config file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Print a JSON array of problems.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    place: Where,
    /// Print the JSON of /api/v1/status.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DrainArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// How long its sessions may go on; the file's drain_limit_ms when nothing is said.
    #[arg(long, value_name = "MILLISECONDS")]
    limit_ms: Option<u64>,
}

#[derive(Debug, Args)]
struct WeightArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// 0 to 256; 0 takes no new clients.
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(0..=256))]
    weight: u32,
}

#[derive(Debug, Args)]
struct PrimaryArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Take the name back instead: what the servers say decides again.
    #[arg(long)]
    withdraw: bool,
}

#[derive(Debug, Args)]
struct EventsArgs {
    #[command(flatten)]
    place: Where,
    /// Stay, and print each new event as it comes.
    #[arg(short, long)]
    follow: bool,
    /// Print each event as a line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Its name or address, or service/server.
    server: String,
    #[command(flatten)]
    place: Where,
}

/// Which running process is meant.
#[derive(Debug, Args)]
struct Where {
    /// Its control socket.
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
    /// Its config file, which names the socket.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Does what the command line asks: 0 when it was done, 1 when not, 2 when it was not understood.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::check(&args),
        Command::Status(args) => ask::status(&args),
        Command::Reload(place) => ask::reload(&place),
        Command::Drain(args) => ask::drain(&args),
        Command::Undrain(args) => ask::undrain(&args),
        Command::Weight(args) => ask::weight(&args),
        Command::Primary(args) => ask::primary(&args),
        Command::Events(args) => events::run(&args),
        Command::Pools(args) => pools::pools(&args),
        Command::Clients(args) => pools::clients(&args),
        Command::Digests(args) => pools::digests(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Pause(args) => pools::pause(&args),
        Command::Resume(args) => pools::resume(&args),
        Command::Reconnect(args) => pools::reconnect(&args),
        Command::Kill(args) => pools::kill(&args),
        Command::Upgrade(args) => upgrade::upgrade(&args),
        Command::Manual(args) => manual::manual(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
