//! The collations that clients name by a number in their login.

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
