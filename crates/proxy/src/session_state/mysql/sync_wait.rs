//! Servers whose connections do not wait for what their cluster has committed (`wsrep_sync_wait`)
//! any more once they were reset: nodes of Galera, by `COM_RESET_CONNECTION` and `COM_CHANGE_USER`
//! (codership/galera issue 613; behind a reset seen with 10.11.19).

/// Asked for behind a login; servers have it or not.
pub const CLUSTERING: &[&str] = &["wsrep_on"];

/// Whether the server with these values is such a one.
#[must_use]
pub fn loses_sync_wait_on_reset<'a>(
    mut values: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> bool {
    values.any(|(name, value)| name == b"wsrep_on" && value == b"ON")
}
