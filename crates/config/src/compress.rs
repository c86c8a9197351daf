//! Reads the keys of compression in `[service.http]`.

use evenkeel_policy::http::compress::{Coding, MediaRange};

use crate::http::read_words;
use crate::keys;
use crate::plan::CompressPlan;
use crate::problem::Problems;
use crate::reader::{Table, wrong_type};
use crate::setting::Settings;

const TYPES_HELP: &str =
    "an array of types, such as `[\"text/*\", \"application/json\", \"*+xml\"]`";

/// Reads the keys.
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> CompressPlan {
    let mut plan = CompressPlan::of(table, problems);
    for word in read_words(table, "compress", keys::COMPRESS_WORDS, problems) {
        let coding = Coding::ALL.into_iter().find(|one| one.name() == word);
        plan.codings
            .extend(coding.filter(|coding| !plan.codings.contains(coding)));
    }
    if table.value("compress_types").is_some() {
        plan.types = read_types(table, problems);
    }
    if plan.codings.is_empty() {
        check_unused(table, problems);
    }
    plan
}

fn read_types(table: &Table<'_>, problems: &mut Problems) -> Vec<MediaRange> {
    let mut types = Vec::new();
    for value in table.elements("compress_types") {
        let Some(text) = value.get_ref().as_str() else {
            wrong_type("compress_types", "texts", value, TYPES_HELP, problems);
            continue;
        };
        match MediaRange::parse(text) {
            Some(range) => types.push(range),
            None => {
                let message = format!("`{text}` is not a media type");
                problems.error(&Some(value.span()), "E_VALUE", message, TYPES_HELP);
            }
        }
    }
    types
}

/// Warns of types that have no effect.
fn check_unused(table: &Table<'_>, problems: &mut Problems) {
    if table.value("compress_types").is_some() {
        let message = "`compress_types` has no effect without `compress`";
        let help = "add `compress = [\"gzip\"]`, or remove it";
        let place = table.key_span("compress_types");
        problems.warning(&place, "W_NO_EFFECT", message, help);
    }
}
