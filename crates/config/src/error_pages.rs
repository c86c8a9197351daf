//! Reads `error_pages` of `[service.http]`.

use crate::plan::ErrorPagePlan;
use crate::problem::Problems;
use crate::reader::{Table, wrong_type};
use crate::route::read_file;
use crate::sources::Sources;

const HELP: &str = "write `error_pages = { \"503\" = \"down.html\", \"5xx\" = \"error.html\" }`";

/// Reads the pages.
pub(crate) fn read(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Vec<ErrorPagePlan> {
    let mut pages = Vec::new();
    for entry in table.entries("error_pages", HELP, problems) {
        let Some((first, last)) = statuses(entry.name) else {
            let message = format!("`{}` is not a status of an error", entry.name);
            let help = "400 to 599, or `4xx` or `5xx` for all that have no page of their own";
            problems.error(&Some(entry.span.clone()), "E_VALUE", message, help);
            continue;
        };
        let span = Some(entry.value.span());
        let Some(name) = entry.value.get_ref().as_str() else {
            wrong_type(entry.name, "a path", entry.value, HELP, problems);
            continue;
        };
        let content = read_file(name, &span, sources, problems);
        pages.extend(content.map(|content| ErrorPagePlan {
            first,
            last,
            content,
        }));
    }
    pages
}

fn statuses(text: &str) -> Option<(u16, u16)> {
    match text {
        "4xx" => Some((400, 499)),
        "5xx" => Some((500, 599)),
        one => {
            let status = one.parse().ok()?;
            (400..=599).contains(&status).then_some((status, status))
        }
    }
}
