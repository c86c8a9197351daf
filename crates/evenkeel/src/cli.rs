//! Defines the command line, and runs the command that it names.

mod check;
mod events;
mod explain;
mod init;
mod manual;
mod password;
mod pools;
mod requests;
mod run;
mod table;
mod upgrade;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::status::RevocationReason;

/// Exit code for a wrong command line; clap uses the same number.
const USAGE: u8 = 2;

/// Load balancer and connection pooler for PostgreSQL, MySQL and MariaDB, and balancer for any TCP
/// service.
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
    /// Ask servers for their product, role, TLS and missing grants, and write a config file for
    /// them.
    Init(init::InitArgs),
    /// Start the load balancer, from a config file or with --listen and --to.
    Run(RunArgs),
    /// Check a config file and the files it refers to.
    Check(CheckArgs),
    /// Show services, servers and sessions of the running process, and differences from the config
    /// file.
    Status(StatusArgs),
    /// Reload the config file; an invalid file changes nothing.
    Reload(ProcessArgs),
    /// Stop sending new clients to a server and let its sessions finish within a limit.
    Drain(DrainArgs),
    /// Send new clients to a drained server again.
    Undrain(ServerArgs),
    /// Change the weight of a server until the process exits.
    Weight(WeightArgs),
    /// Override the primary: choose it when it cannot be determined from the servers.
    Primary(PrimaryArgs),
    /// Show events: changes of state, role, primary and configuration, and commands.
    Events(EventsArgs),
    /// Show the pools and users of a PostgreSQL or MySQL service.
    Pools(pools::ServiceArgs),
    /// Show the clients of a PostgreSQL or MySQL service.
    Clients(pools::ClientsArgs),
    /// Show statistics per statement (digest) of a PostgreSQL or MySQL service.
    Digests(pools::ServiceArgs),
    /// Show where a statement would be routed, and why.
    Explain(explain::ExplainArgs),
    /// Pause a service: hold new transactions until `resume`. Returns when its server connections
    /// are closed.
    Pause(pools::PauseArgs),
    /// Resume a paused service.
    Resume(pools::DatabaseArgs),
    /// Close server connections as they become idle; new ones are opened as needed.
    Reconnect(pools::DatabaseArgs),
    /// Terminate a client and cancel its query.
    Kill(pools::KillArgs),
    /// Revoke the certificate of a name that came by ACME, and order another one with a new key.
    Revoke(RevokeArgs),
    /// Replace the running process without downtime; the old process lets its sessions finish.
    Upgrade(upgrade::UpgradeArgs),
    /// Write man pages and shell completions to a directory.
    #[command(hide = true)]
    Manual(manual::ManualArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Config file.
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["listen", "to", "balance", "admin", "socket", "print_config"]
    )]
    config: Option<PathBuf>,
    /// Address to listen on, for example tcp://127.0.0.1:3306, or postgres://:6432 for all
    /// addresses of this machine.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<String>,
    /// Servers, for example 10.0.0.1:3306,10.0.0.2:3306 or postgres://app@db1,db2. The user is the
    /// monitor account; its password is PGPASSWORD or MYSQL_PWD, else it is asked for.
    #[arg(
        long,
        value_name = "SERVER",
        value_delimiter = ',',
        requires = "listen"
    )]
    to: Vec<String>,
    /// Balancing algorithm [default: round-robin].
    #[arg(long, value_name = "ALGORITHM", requires = "listen")]
    balance: Option<String>,
    /// Address of the status page and API, or "off" [default: 127.0.0.1:9000].
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    admin: Option<String>,
    /// Control socket, used by `status`, `drain` and other commands.
    #[arg(long, value_name = "PATH", requires = "listen")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    tls: RunTlsArgs,
    /// Print the config file that these flags stand for, and exit.
    #[arg(long, requires = "listen")]
    print_config: bool,
}

/// TLS of a service without a config file.
#[derive(Debug, Args)]
struct RunTlsArgs {
    /// TLS to servers: off, encrypt or verify [default: verify, and off on this machine].
    #[arg(long, value_name = "MODE", requires = "listen")]
    server_tls: Option<String>,
    /// CA certificates (PEM) that sign the servers' certificates.
    #[arg(long, value_name = "FILE", requires = "listen")]
    server_ca: Option<PathBuf>,
    /// Fingerprints of server certificates to accept, as sha256:….
    #[arg(
        long,
        value_name = "FINGERPRINT",
        value_delimiter = ',',
        requires = "listen"
    )]
    server_fingerprint: Vec<String>,
    /// Certificate (PEM) for clients that connect with TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Config file.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Print problems as a JSON array.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Show this service only, with all its servers.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Show all servers. Without it, with more than 500 servers, only those with a problem are
    /// shown, at most 20 of a service.
    #[arg(long)]
    all: bool,
    /// Print the JSON of /api/v1/status.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DrainArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Time for its sessions to finish [default: drain_limit_ms of the config file].
    #[arg(long, value_name = "MILLISECONDS")]
    limit_ms: Option<u64>,
}

#[derive(Debug, Args)]
struct WeightArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// New weight, 0 to 256; with 0 the server receives no new clients.
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(0..=256))]
    weight: u32,
}

#[derive(Debug, Args)]
struct PrimaryArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Remove the override; the primary is determined from the servers' reports again.
    #[arg(long)]
    clear: bool,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// Name of the certificate, as in `acme` of the config file.
    name: String,
    /// Reason that the authority publishes.
    #[arg(long, value_enum, value_name = "REASON", default_value = "unspecified")]
    reason: RevocationReason,
    /// Order no other certificate: the revoked one stays in use until it is renewed.
    #[arg(long)]
    no_order: bool,
    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Debug, Args)]
struct EventsArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Wait for new events and print them as they occur.
    #[arg(short, long)]
    follow: bool,
    /// Print events as JSON, one per line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// Server name or address, or service/server.
    server: String,
    #[command(flatten)]
    process: ProcessArgs,
}

/// Running process that a command talks to.
#[derive(Debug, Args)]
struct ProcessArgs {
    /// Control socket of the running process.
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
    /// Config file of the running process, to find the control socket.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command. Returns exit code 0 on success, 1 on failure, and 2 for a wrong command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Init(args) => init::init(&args),
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::check(&args),
        Command::Status(args) => requests::status(&args),
        Command::Reload(process) => requests::reload(&process),
        Command::Drain(args) => requests::drain(&args),
        Command::Undrain(args) => requests::undrain(&args),
        Command::Weight(args) => requests::weight(&args),
        Command::Primary(args) => requests::primary(&args),
        Command::Events(args) => events::run(&args),
        Command::Pools(args) => pools::pools(&args),
        Command::Clients(args) => pools::clients(&args),
        Command::Digests(args) => pools::digests(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Pause(args) => pools::pause(&args),
        Command::Resume(args) => pools::resume(&args),
        Command::Reconnect(args) => pools::reconnect(&args),
        Command::Kill(args) => pools::kill(&args),
        Command::Revoke(args) => requests::revoke(&args),
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
