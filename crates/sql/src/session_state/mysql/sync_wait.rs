//! Detects servers whose connections, after a reset, no longer wait for the commits of their
//! cluster (`wsrep_sync_wait`): Galera nodes, after `COM_RESET_CONNECTION` and `COM_CHANGE_USER`
//! (codership/galera issue 613; after a reset seen with 10.11.19).

/// Variables that are queried after a login; some servers lack them.
pub const CLUSTERING: &[&str] = &["wsrep_on"];

/// Returns whether a server with these values is affected.
#[must_use]
pub fn loses_sync_wait_on_reset<'a>(
    mut values: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> bool {
    values.any(|(name, value)| name == b"wsrep_on" && value == b"ON")
}
