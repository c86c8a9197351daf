//! Names of users and databases, as a database server has them.

use super::problem::Problems;
use super::reader::Entry;

/// What the server keeps of a longer name would be another name (NAMEDATALEN - 1).
const BYTES_MAX: usize = 63;

/// Notes a name that no user and no database can have.
pub(super) fn check(entry: &Entry<'_>, problems: &mut Problems) {
    let bytes = entry.name.len();
    let message = if bytes == 0 {
        "this name is empty".to_owned()
    } else if bytes > BYTES_MAX {
        format!("this name has {bytes} bytes, more than PostgreSQL keeps")
    } else if entry.name.chars().any(char::is_control) {
        "this name contains a control character".to_owned()
    } else {
        return;
    };
    let help = format!("1 to {BYTES_MAX} bytes, as the server knows it");
    problems.error(&Some(entry.place.clone()), "E_NAME", message, help);
}
