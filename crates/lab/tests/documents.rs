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
#[path = "documents/schema.rs"]
mod schema;

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
fn the_schema_for_editors_accepts_every_configuration_on_a_page_and_refuses_wrong_ones() {
    let mut blocks = Vec::new();
    for (name, text) in page::pages() {
        let of_page = page::blocks(&name, &text).into_iter();
        blocks.extend(of_page.filter(|block| block.language == "toml"));
    }
    let mut files: Vec<_> = blocks.iter().map(config::files).collect();
    let wrong = schema::WRONG
        .iter()
        .map(|(text, _)| vec![(*text).to_owned()]);
    files.extend(wrong);
    let Some(errors) = schema::errors(&files) else {
        return;
    };
    let (of_pages, of_wrong) = errors.split_at(blocks.len());
    for (block, errors) in blocks.iter().zip(of_pages) {
        assert!(errors.is_empty(), "{}: {errors:?}", block.location);
    }
    for ((text, place), errors) in schema::WRONG.iter().zip(of_wrong) {
        let found = errors
            .iter()
            .any(|error| error.starts_with(&format!("{place}: ")));
        assert!(found, "{text}: {errors:?}");
    }
    assert!(blocks.len() > 30, "are the blocks found?");
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
