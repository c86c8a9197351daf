//! Variables that distinguish one server from another.

/// Variables that are queried after a login; servers have some of them.
pub const IDENTIFYING: &[&str] = &["hostname", "port", "server_id", "server_uid", "server_uuid"];

/// Returns their names and values as one key. Servers with different keys are different servers.
#[must_use]
pub fn identity<'a>(values: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Box<[u8]> {
    let is_identifying = |name: &[u8]| IDENTIFYING.iter().any(|one| one.as_bytes() == name);
    let mut identifying: Vec<_> = values.filter(|(name, _)| is_identifying(name)).collect();
    identifying.sort_unstable();
    let words = identifying
        .into_iter()
        .flat_map(|(name, value)| [name, value]);
    words.collect::<Vec<_>>().join(&0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(&'static str, &'static str)]) -> Box<[u8]> {
        let values = values.iter();
        identity(values.map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn servers_differ_by_what_they_are_called_and_by_nothing_else() {
        let one = of(&[("hostname", "db"), ("port", "3306"), ("profiling", "ON")]);
        assert_eq!(one, of(&[("port", "3306"), ("hostname", "db")]));
        assert_ne!(one, of(&[("hostname", "db"), ("port", "3307")]));
        assert_ne!(
            one,
            of(&[("hostname", "db"), ("port", "3306"), ("server_uuid", "x")])
        );
        assert_ne!(
            of(&[("hostname", "ab")]),
            of(&[("hostname", "a"), ("port", "b")])
        );
    }
}
