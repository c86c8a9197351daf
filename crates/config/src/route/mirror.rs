//! Reads the mirror of a route: the service that gets copies of its requests.

use super::fields;
use crate::keys;
use crate::plan::MirrorPlan;
use crate::problem::Problems;
use crate::reader::{Table, wrong_type};
use crate::setting::Settings;

const HELP: &str = "write `mirror = \"next\"`, or `mirror = { service = \"next\", percent = 10 }`";

/// Reads the mirror. `None`: the route has none.
pub(super) fn read(table: &Table<'_>, problems: &mut Problems) -> Option<MirrorPlan> {
    let value = table.value("mirror")?;
    if let Some(name) = value.get_ref().as_str() {
        return Some(MirrorPlan {
            service: name.to_owned(),
            ..MirrorPlan::default()
        });
    }
    let Some(values) = value.get_ref().as_table() else {
        wrong_type("mirror", "a name or a table", value, HELP, problems);
        return None;
    };
    let entry = Table::open(&keys::MIRROR, values, value.span(), problems);
    if entry.value("service").is_none() {
        let message = "`service` is missing";
        problems.error(&entry.span, "E_MISSING_KEY", message, HELP);
    }
    let plan = MirrorPlan::of(&entry, problems);
    Some(MirrorPlan {
        set_request: fields::set(&entry, "set_request", problems),
        remove_request: fields::removed(&entry, problems),
        service: entry.text("service", problems)?.to_owned(),
        ..plan
    })
}
