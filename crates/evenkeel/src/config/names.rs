//! Names of users and databases, as a database server has them.

use super::plan::Protocol;
use super::problem::Problems;
use super::reader::Entry;

/// What PostgreSQL keeps of a longer name would be another name (NAMEDATALEN - 1).
const POSTGRES_BYTES_MAX: usize = 63;

/// MariaDB's longest user (USERNAME_CHAR_LENGTH); MySQL refuses one of more than 32 characters.
const MYSQL_BYTES_MAX: usize = 128;

/// Notes a name that no user and no database can have.
pub(super) fn check(protocol: Protocol, entry: &Entry<'_>, problems: &mut Problems) {
    let bytes_max = match protocol {
        Protocol::Mysql => MYSQL_BYTES_MAX,
        Protocol::Postgres | Protocol::Tcp => POSTGRES_BYTES_MAX,
    };
    let bytes = entry.name.len();
    let message = if bytes == 0 {
        "this name is empty".to_owned()
    } else if bytes > bytes_max {
        let keeps = protocol.in_words();
        format!("this name has {bytes} bytes; {keeps} supports fewer")
    } else if entry.name.chars().any(char::is_control) {
        "this name contains a control character".to_owned()
    } else {
        return;
    };
    let help = format!("1 to {bytes_max} bytes, as the server knows it");
    problems.error(&Some(entry.place.clone()), "E_NAME", message, help);
}
