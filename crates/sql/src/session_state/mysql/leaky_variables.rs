//! Disables variables through which a connection reveals other clients' statements. They pin a
//! client that sets them, and are off for all others, regardless of the server's defaults.

use super::variables::{VariableHandling, handling};

/// Variables that are queried after a login.
pub const LEAKY_VARIABLES: &[&str] = &["optimizer_trace", "profiling", "sql_auto_is_null"];

/// Returns the statement that disables those that are on; `None` if all are off.
#[must_use]
pub fn disable_leaky_variables<'a>(
    values: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Option<String> {
    let is_leaky = |name: &[u8]| LEAKY_VARIABLES.iter().any(|one| one.as_bytes() == name);
    let leaky = values.filter(|(name, _)| is_leaky(name));
    let each = leaky.filter_map(|(name, value)| {
        let VariableHandling::Pins(_, harmless) = handling(name) else {
            return None;
        };
        let off = harmless.first()?;
        let is_off = harmless.iter().any(|one| one.as_bytes() == value);
        let name = std::str::from_utf8(name).ok()?;
        (!is_off).then(|| format!("@@session.{name}='{off}'"))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("SET {}", each.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_is_switched_off() {
        let disabled = |values: &[(&'static str, &'static str)]| {
            let values = values.iter();
            disable_leaky_variables(values.map(|(name, value)| (name.as_bytes(), value.as_bytes())))
        };
        let off = [
            ("optimizer_trace", "enabled=off"),
            ("profiling", "OFF"),
            ("sql_auto_is_null", "OFF"),
        ];
        assert_eq!(disabled(&off), None);
        let on = [("profiling", "ON"), ("sql_auto_is_null", "ON")];
        let text = "SET @@session.profiling='OFF',@@session.sql_auto_is_null='OFF'";
        assert_eq!(disabled(&on).as_deref(), Some(text));
        let traced = [("optimizer_trace", "enabled=on,one_line=off")];
        let text = "SET @@session.optimizer_trace='enabled=off'";
        assert_eq!(disabled(&traced).as_deref(), Some(text));
    }
}
