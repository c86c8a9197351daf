//! Determines the default path of the control socket.

use std::env;
use std::path::PathBuf;

/// Returns `/run/evenkeel/evenkeel.sock` for root. For other users the socket is in
/// `$XDG_RUNTIME_DIR`, or in the user's own directory under `/tmp`.
pub fn default_socket() -> PathBuf {
    let uid = effective_uid();
    if uid == 0 {
        return PathBuf::from("/run/evenkeel/evenkeel.sock");
    }
    match env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("evenkeel.sock"),
        None => PathBuf::from(format!("/tmp/evenkeel-{uid}/evenkeel.sock")),
    }
}

#[expect(
    unsafe_code,
    reason = "the standard library does not report the user id"
)]
fn effective_uid() -> u32 {
    // SAFETY: geteuid takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}
