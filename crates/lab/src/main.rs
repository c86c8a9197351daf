//! The program `evenkeel-lab`: real servers on this machine, the demonstration, the measurements.

mod control;
mod demo;
mod measure;
mod stop;
mod table;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real servers on loopback, to try and to measure Evenkeel with; gone when the lab stops.
#[derive(Parser)]
#[command(name = "evenkeel-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start servers and keep them until Ctrl-C.
    #[command(subcommand)]
    Up(up::Up),
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
    /// Databases, Evenkeel in front, load, and a replica killed in the middle.
    Demo,
    /// Measure Evenkeel and its rivals in interleaved blocks and print ratios.
    Measure(measure::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Up(up) => up::run(&up),
        Command::List => control::list(),
        Command::Kill(target) => control::tell("kill", &target),
        Command::Stop(target) => control::tell("stop", &target),
        Command::Start(target) => control::tell("start", &target),
        Command::Freeze(target) => control::tell("freeze", &target),
        Command::Thaw(target) => control::tell("thaw", &target),
        Command::Demo => demo::run(),
        Command::Measure(options) => measure::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("evenkeel-lab: {error:#}");
        ExitCode::FAILURE
    })
}
