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

fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
