//! Checks names of users and databases against the limits of the database servers.

use crate::plan::SqlProtocol;
use crate::problem::Problems;
use crate::reader::Entry;

/// Maximum length in PostgreSQL (NAMEDATALEN - 1), which truncates longer names.
const POSTGRES_BYTES_MAX: usize = 63;

/// Maximum length of a MariaDB user (USERNAME_CHAR_LENGTH). MySQL permits only 32 characters.
const MYSQL_BYTES_MAX: usize = 128;

/// Reports a name that no user or database can have.
pub(crate) fn check(protocol: SqlProtocol, entry: &Entry<'_>, problems: &mut Problems) {
    let bytes_max = match protocol {
        SqlProtocol::Mysql => MYSQL_BYTES_MAX,
        SqlProtocol::Postgres => POSTGRES_BYTES_MAX,
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
    problems.error(&Some(entry.span.clone()), "E_NAME", message, help);
}
