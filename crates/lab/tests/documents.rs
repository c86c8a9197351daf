//! Tests the examples of README.md and docs/: configurations, commands, and executable pages.

#[path = "harness/certificates.rs"]
#[allow(dead_code, reason = "its files of users are for other tests")]
mod certificates;
#[path = "documents/commands.rs"]
mod commands;
#[path = "documents/config.rs"]
mod config;
#[path = "documents/page.rs"]
mod page;
#[path = "documents/run.rs"]
mod run;

use certificates::Certificates;
use commands::Help;

/// Pages whose examples must be run.
const RUN: &[&str] = &["README.md", "docs/http.md", "docs/start.md"];

#[test]
fn every_configuration_on_a_page_passes_evenkeel_check() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let mut problems = Vec::new();
    let mut count = 0;
    for (name, text) in page::pages() {
        let blocks = page::blocks(&name, &text).into_iter();
        let of_toml = blocks.filter(|block| block.language == "toml");
        for block in of_toml {
            count += 1;
            problems.extend(config::problems(&block, &certificates));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    println!("{count} blocks of TOML");
    assert!(count > 1, "{count}: are the blocks found?");
}

#[test]
fn every_evenkeel_command_on_a_page_exists_with_its_options() {
    let help = Help::read();
    let mut problems = Vec::new();
    for (name, text) in page::pages() {
        for block in page::blocks(&name, &text) {
            problems.extend(commands::problems_of_block(&block, &help));
        }
        problems.extend(commands::problems_of_text(&name, &text, &help));
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_examples_of_a_page_work_in_front_of_stock_servers_on_other_machines() {
    let mut missing = RUN.to_vec();
    for (name, text) in page::pages() {
        let steps =
            run::steps(&page::blocks(&name, &text)).unwrap_or_else(|error| panic!("{error}"));
        if steps.is_empty() {
            continue;
        }
        missing.retain(|page| *page != name);
        match run::run(&steps) {
            Ok(None) => println!("{name}: {} steps", steps.len()),
            Ok(Some(reason)) => println!("skipped: {name}: {reason}"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(missing.is_empty(), "no steps found in {missing:?}");
}
