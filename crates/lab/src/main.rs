//! The program `evenkeel-lab`: real servers on this machine, the demonstration, the measurements.

mod control;
mod demo;
mod measure;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use evenkeel_lab::{attack, bench, chaos, compat, row, stop, table};

/// Runs real database and web servers on loopback to test and benchmark Evenkeel; removes them on
/// exit.
#[derive(Parser)]
#[command(name = "evenkeel-lab", version = env!("EVENKEEL_VERSION"))]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start servers and keep them until Ctrl-C.
    Up(up::Options),
    /// List the servers of all running labs.
    List,
    /// Kill a server (`kill -9`).
    Kill(control::Target),
    /// Stop a server cleanly.
    Stop(control::Target),
    /// Restart a killed or stopped server on the same port with the same data.
    Start(control::Target),
    /// Freeze a server (SIGSTOP): it accepts connections but never answers.
    Freeze(control::Target),
    /// Resume a frozen server.
    Thaw(control::Target),
    /// Promote a replica; the other servers, including the old primary if reachable, follow it.
    Promote(control::Target),
    /// Make a primary reject writes; there is no primary until `promote`.
    Demote(control::Target),
    /// Promote the most advanced replica after the primary of a cluster was lost.
    FailOver(control::Target),
    /// Turn an old primary into a replica, discarding its diverged writes.
    Rejoin(control::Target),
    /// Make a replica lag (MariaDB: whole seconds); 0 ends it.
    Lag(control::Delayed),
    /// Stop applying replication on a replica.
    StopReplication(control::Target),
    /// Resume applying replication on a replica.
    StartReplication(control::Target),
    /// Cut a server's network link; only in a lab with --namespaces.
    CutOff(control::Target),
    /// Restore the network link of a server.
    JoinAgain(control::Target),
    /// Run the demo: databases behind Evenkeel under load, with a replica and then a primary
    /// killed.
    Demo,
    /// Run published experiments or your own, and report which findings hold on this machine.
    Bench(bench::Options),
    /// Regenerate the report of a bench run from its results.
    Report(bench::report::Options),
    /// Draw the figures of a bench run as SVG files.
    Figures(bench::report::images::Options),
    /// Compare two bench runs: which ratios lie within the other run's interval.
    Compare(bench::compare::Options),
    /// Kill clients and servers under load for a long time, and check for wrong results.
    Chaos(chaos::Options),
    /// Run third-party test suites directly and through a pooler, and compare.
    Compat(compat::Options),
    /// Send hostile HTTP requests through Evenkeel to several servers, and check what they saw.
    Attack(attack::Options),
    /// Measure Evenkeel and its rivals in interleaved blocks and print ratios.
    Measure(measure::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Up(options) => up::run(&options),
        Command::List => control::list(),
        Command::Kill(target) => control::send_command("kill", &target),
        Command::Stop(target) => control::send_command("stop", &target),
        Command::Start(target) => control::send_command("start", &target),
        Command::Freeze(target) => control::send_command("freeze", &target),
        Command::Thaw(target) => control::send_command("thaw", &target),
        Command::Promote(target) => control::send_command("promote", &target),
        Command::Demote(target) => control::send_command("demote", &target),
        Command::FailOver(target) => control::send_command("fail-over", &target),
        Command::Rejoin(target) => control::send_command("rejoin", &target),
        Command::Lag(delayed) => control::delay(&delayed),
        Command::StopReplication(target) => control::send_command("stop-replication", &target),
        Command::StartReplication(target) => control::send_command("start-replication", &target),
        Command::CutOff(target) => control::send_command("cut-off", &target),
        Command::JoinAgain(target) => control::send_command("join-again", &target),
        Command::Demo => demo::run(),
        Command::Bench(options) => bench::run(&options),
        Command::Report(options) => bench::report::run(&options),
        Command::Figures(options) => bench::report::images::run(&options),
        Command::Compare(options) => bench::compare::run(&options),
        Command::Chaos(options) => chaos::command(&options),
        Command::Compat(options) => compat::command(&options),
        Command::Attack(options) => attack::command(&options),
        Command::Measure(options) => measure::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("evenkeel-lab: {error:#}");
        ExitCode::FAILURE
    })
}
