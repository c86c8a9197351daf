//! The program `evenkeel-lab`: real servers on this machine, the demonstration, the measurements.

mod control;
mod demo;
mod measure;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use evenkeel_lab::{bench, chaos, compat, row, stop, table};

/// Real servers on loopback, to try and to measure Evenkeel with; gone when the lab stops.
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
    /// List the servers of the labs that run on this machine.
    List,
    /// Kill a server, as `kill -9` does.
    Kill(control::Target),
    /// Stop a server cleanly.
    Stop(control::Target),
    /// Start a killed or stopped server again: same port, same data.
    Start(control::Target),
    /// Stop a server where it stands (SIGSTOP): it accepts and never answers.
    Freeze(control::Target),
    /// Let a frozen server go on.
    Thaw(control::Target),
    /// Make a replica the primary; the others, and the old primary if it can be reached, follow it.
    Promote(control::Target),
    /// Have a primary refuse writes; nobody is primary until `promote`.
    Demote(control::Target),
    /// After a server's cluster lost its primary, promote the replica that has most.
    FailOver(control::Target),
    /// Make an old primary a replica, whatever it has written since.
    Rejoin(control::Target),
    /// Have a replica lag behind (MariaDB: whole seconds); 0 ends that.
    Lag(control::Delayed),
    /// Have a replica apply nothing more.
    StopReplication(control::Target),
    /// Have a replica apply again.
    StartReplication(control::Target),
    /// Cut a server's network link; only in a lab with --namespaces.
    CutOff(control::Target),
    /// Mend a server's network link.
    JoinAgain(control::Target),
    /// Databases, Evenkeel in front, load, and a replica killed in the middle.
    Demo,
    /// Run published experiments again, or one of your own, and report what holds here.
    Bench(bench::Options),
    /// Draw the report of a bench run again, from its results.
    Report(bench::report::Options),
    /// Whether two bench runs say the same: which ratios lie within the other's interval.
    Compare(bench::compare::Options),
    /// Kill clients and servers under load for long, and look whether anything came out wrong.
    Chaos(chaos::Options),
    /// Run other people's tests, of databases and clients, directly and through a pooler.
    Compat(compat::Options),
    /// Measure Evenkeel and its rivals in interleaved blocks and print ratios.
    Measure(measure::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Up(options) => up::run(&options),
        Command::List => control::list(),
        Command::Kill(target) => control::tell("kill", &target),
        Command::Stop(target) => control::tell("stop", &target),
        Command::Start(target) => control::tell("start", &target),
        Command::Freeze(target) => control::tell("freeze", &target),
        Command::Thaw(target) => control::tell("thaw", &target),
        Command::Promote(target) => control::tell("promote", &target),
        Command::Demote(target) => control::tell("demote", &target),
        Command::FailOver(target) => control::tell("fail-over", &target),
        Command::Rejoin(target) => control::tell("rejoin", &target),
        Command::Lag(delayed) => control::delay(&delayed),
        Command::StopReplication(target) => control::tell("stop-replication", &target),
        Command::StartReplication(target) => control::tell("start-replication", &target),
        Command::CutOff(target) => control::tell("cut-off", &target),
        Command::JoinAgain(target) => control::tell("join-again", &target),
        Command::Demo => demo::run(),
        Command::Bench(options) => bench::run(&options),
        Command::Report(options) => bench::report::run(&options),
        Command::Compare(options) => bench::compare::run(&options),
        Command::Chaos(options) => chaos::command(&options),
        Command::Compat(options) => compat::command(&options),
        Command::Measure(options) => measure::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("evenkeel-lab: {error:#}");
        ExitCode::FAILURE
    })
}
