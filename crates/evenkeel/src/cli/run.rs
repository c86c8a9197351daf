//! Implements `evenkeel run`: starts the balancer from a config file or from flags.

use std::process::ExitCode;

use evenkeel_config::plan::Secret;
use evenkeel_config::{Flags, Loaded, Style};

use super::{RunArgs, USAGE, password};

const HOW_TO_BEGIN: &str = "\
error: no configuration: give a config file, or an address and servers

  evenkeel run -c evenkeel.toml
  evenkeel run --listen postgres://:6432 --to postgres://USER@10.0.0.1,10.0.0.2
  evenkeel run --listen tcp://127.0.0.1:3306 --to 10.0.0.1:3306,10.0.0.2:3306
  evenkeel init --from 10.0.0.1,10.0.0.2 --user USER --output evenkeel.toml

A minimal config file; check yours with `evenkeel check -c FILE`:

  [[service]]
  name = \"orders\"
  listen = \"127.0.0.1:3306\"
  servers = [\"10.0.0.1:3306\", \"10.0.0.2:3306\"]
";

pub(super) fn run(args: RunArgs) -> ExitCode {
    if args.config.is_none() && args.listen.is_empty() {
        eprint!("{HOW_TO_BEGIN}");
        return ExitCode::from(USAGE);
    }
    match &args.config {
        Some(path) => start(evenkeel_config::load(path)),
        None => run_flags(args),
    }
}

fn start(Loaded { plan, problems }: Loaded) -> ExitCode {
    eprint!("{}", problems.render(Style::for_stderr()));
    let Some(plan) = plan else {
        return ExitCode::FAILURE;
    };
    match crate::run::run(plan, problems) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_flags(args: RunArgs) -> ExitCode {
    let is_printed = args.print_config;
    let mut flags = flags(args);
    if let Some((protocol, user)) = flags.account() {
        match password::password(protocol, &user) {
            Ok(password) => flags.password = Some(Secret::new(password)),
            Err(error) => {
                eprintln!("error: cannot read the password: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let loaded = evenkeel_config::from_flags(&flags);
    match (is_printed, &loaded.plan) {
        (true, Some(plan)) => {
            print!("{}", evenkeel_config::file_of_flags(&flags, plan));
            ExitCode::SUCCESS
        }
        _ => start(loaded),
    }
}

fn flags(args: RunArgs) -> Flags {
    let RunArgs {
        listen,
        to,
        balance,
        admin,
        socket,
        tls,
        ..
    } = args;
    Flags {
        listen,
        to,
        balance,
        admin,
        socket,
        server_tls: tls.server_tls,
        server_ca: tls.server_ca,
        server_fingerprints: tls.server_fingerprint,
        tls: tls.tls_certificate.zip(tls.tls_key),
        password: None,
    }
}
