//! Implements `evenkeel run`: starts the balancer from a config file or from flags.

use std::process::ExitCode;

use super::{RunArgs, USAGE};
use crate::config::{self, Flags, Loaded, Style};

const HOW_TO_BEGIN: &str = "\
error: no configuration: give a config file, or an address and servers

  evenkeel run -c evenkeel.toml
  evenkeel run --listen tcp://127.0.0.1:3306 --to 10.0.0.1:3306,10.0.0.2:3306

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
    let Loaded { plan, problems } = load(args);
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

fn load(args: RunArgs) -> Loaded {
    if let Some(path) = &args.config {
        return config::load(path);
    }
    let RunArgs {
        listen,
        to,
        balance,
        admin,
        socket,
        ..
    } = args;
    config::from_flags(&Flags {
        listen,
        to,
        balance,
        admin,
        socket,
    })
}
