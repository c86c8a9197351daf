//! Maps collation ids of client logins to collations.

mod known;

use crate::mysql;

/// Ids of the collations that are the defaults of their character sets, unless configured
/// otherwise.
const PLAIN: [(u16, &[u8]); 4] = [
    (8, b"latin1"),
    (11, b"ascii"),
    (33, b"utf8mb3"),
    (45, b"utf8mb4"),
];

/// Returns the character set and collation that MariaDB 11 uses for a login with a default
/// collation: that of `character_set_collations`, such as `utf8mb4=utf8mb4_uca1400_ai_ci`.
pub(super) fn configured_default(number: u16, collations: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let (_, charset) = PLAIN.into_iter().find(|(plain, _)| *plain == number)?;
    let mut pairs = collations.split(|byte| *byte == b',');
    let other = pairs.find_map(|pair| {
        let rest = pair.trim_ascii().strip_prefix(charset)?;
        rest.strip_prefix(b"=")
    });
    Some((charset, other?))
}

/// Collation that a client's id stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collation {
    /// The server's default.
    Default,
    /// The collation of this name.
    Named(&'static str),
    /// An id that the server may know.
    Number(u16),
}

/// Returns whether texts can be parsed in a character set; `client` may still be a collation id.
pub(super) fn can_be_read(client: &[u8]) -> bool {
    // Ids for big5, sjis, gbk, cp932, gb18030; those of MariaDB's NOPAD collations are 1,024
    // higher.
    const HIDING: [u16; 11] = [1, 13, 28, 84, 87, 88, 95, 96, 248, 249, 250];
    let number: Option<u16> = str::from_utf8(client)
        .ok()
        .and_then(|text| text.parse().ok());
    let hides = number.is_some_and(|number| HIDING.contains(&(number % 1024)));
    mysql::charset_is_safe(client) && !hides
}

/// Returns the collation for the id in a login.
pub(super) fn of_login(number: u16, mariadb: bool, version: u32) -> Collation {
    if number == 0 {
        return Collation::Default;
    }
    let known = known::KNOWN.binary_search_by_key(&number, |(known, _)| *known);
    let known = known.ok().and_then(|index| known::KNOWN.get(index));
    if let Some((_, name)) = known {
        return match name.starts_with("utf8mb3") && names_it_utf8(mariadb, version) {
            true => Collation::Number(number),
            false => Collation::Named(name),
        };
    }
    // MySQL's newer collations, which its clients send to MariaDB too.
    if mariadb && version < 110_405 && (248..=323).contains(&number) {
        return Collation::Default;
    }
    match number {
        255 => Collation::Named("utf8mb4_0900_ai_ci"),
        number => Collation::Number(number),
    }
}

/// Returns whether utf8mb3 has another name: before MariaDB 10.6 and MySQL 8.0.30.
fn names_it_utf8(mariadb: bool, version: u32) -> bool {
    version < if mariadb { 100_600 } else { 80_030 }
}

#[cfg(test)]
mod tests {
    use super::{Collation, configured_default, known, of_login};

    #[test]
    fn numbers_that_all_servers_know_have_their_names_and_utf8mb3_its_number_on_old_ones() {
        assert!(known::KNOWN.is_sorted_by_key(|(number, _)| *number));
        assert_eq!(of_login(83, true, 101_100), Collation::Named("utf8mb3_bin"));
        assert_eq!(
            of_login(192, false, 90_700),
            Collation::Named("utf8mb3_unicode_ci")
        );
        assert_eq!(of_login(83, true, 100_500), Collation::Number(83));
        assert_eq!(
            of_login(255, false, 90_700),
            Collation::Named("utf8mb4_0900_ai_ci")
        );
        assert_eq!(of_login(1_052, true, 101_100), Collation::Number(1_052));
    }

    #[test]
    fn a_plain_collation_is_another_one_where_the_server_has_another() {
        let chosen = b"utf8mb3=utf8mb3_x_ci, utf8mb4=utf8mb4_bin";
        assert_eq!(
            configured_default(45, chosen),
            Some((&b"utf8mb4"[..], &b"utf8mb4_bin"[..]))
        );
        assert_eq!(configured_default(46, chosen), None);
        assert_eq!(configured_default(8, chosen), None);
        assert_eq!(configured_default(45, b""), None);
    }
}
