//! The collations that clients name by a number in their login.

use evenkeel_wire::sql::mysql;

/// Of the numbers that clients send, what they mean on every server that knows them.
const KNOWN: &[(u16, &str)] = &[
    (5, "latin1_german1_ci"),
    (8, "latin1_swedish_ci"),
    (11, "ascii_general_ci"),
    (45, "utf8mb4_general_ci"),
    (46, "utf8mb4_bin"),
    (47, "latin1_bin"),
    (48, "latin1_general_ci"),
    (63, "binary"),
    (65, "ascii_bin"),
    (224, "utf8mb4_unicode_ci"),
    (246, "utf8mb4_unicode_520_ci"),
];

/// The numbers of what character sets are compared by, unless somebody says otherwise.
const PLAIN: [(u16, &[u8]); 4] = [
    (8, b"latin1"),
    (11, b"ascii"),
    (33, b"utf8mb3"),
    (45, b"utf8mb4"),
];

/// Character set and collation that MariaDB of 11 takes where a login names a plain one: that of
/// `character_set_collations`, such as `utf8mb4=utf8mb4_uca1400_ai_ci`.
pub(super) fn instead(number: u16, collations: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let (_, charset) = PLAIN.into_iter().find(|(plain, _)| *plain == number)?;
    let mut pairs = collations.split(|byte| *byte == b',');
    let other = pairs.find_map(|pair| {
        let rest = pair.trim_ascii().strip_prefix(charset)?;
        rest.strip_prefix(b"=")
    });
    Some((charset, other?))
}

/// What a client's number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collation {
    /// What the server has by itself.
    Servers,
    /// This one.
    Named(&'static str),
    /// Something that the server knows by the number, perhaps.
    Number(u16),
}

/// Whether texts can be read in a character set, which may still be the number of a collation.
pub(super) fn can_be_read(client: &[u8]) -> bool {
    // Of big5, sjis, gbk, cp932, gb18030; MariaDB's that compare blanks are higher by 1,024.
    const HIDING: [u16; 11] = [1, 13, 28, 84, 87, 88, 95, 96, 248, 249, 250];
    let number: Option<u16> = str::from_utf8(client)
        .ok()
        .and_then(|text| text.parse().ok());
    let hides = number.is_some_and(|number| HIDING.contains(&(number % 1024)));
    mysql::charset_is_safe(client) && !hides
}

/// Of the number in a login.
pub(super) fn of_login(number: u16, mariadb: bool, version: u32) -> Collation {
    if number == 0 {
        return Collation::Servers;
    }
    if let Some((_, name)) = KNOWN.iter().find(|(known, _)| *known == number) {
        return Collation::Named(name);
    }
    // MySQL's newer ones, which its clients send to MariaDB too.
    if mariadb && version < 110_405 && (248..=323).contains(&number) {
        return Collation::Servers;
    }
    match number {
        255 => Collation::Named("utf8mb4_0900_ai_ci"),
        number => Collation::Number(number),
    }
}

#[cfg(test)]
mod tests {
    use super::instead;

    #[test]
    fn a_plain_collation_is_another_one_where_the_server_has_another() {
        let chosen = b"utf8mb3=utf8mb3_x_ci, utf8mb4=utf8mb4_bin";
        assert_eq!(
            instead(45, chosen),
            Some((&b"utf8mb4"[..], &b"utf8mb4_bin"[..]))
        );
        assert_eq!(instead(46, chosen), None);
        assert_eq!(instead(8, chosen), None);
        assert_eq!(instead(45, b""), None);
    }
}
