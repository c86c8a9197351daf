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
    if mariadb && version < 110_400 && (248..=323).contains(&number) {
        return Collation::Servers;
    }
    match number {
        255 if !mariadb => Collation::Named("utf8mb4_0900_ai_ci"),
        number => Collation::Number(number),
    }
}
