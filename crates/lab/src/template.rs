//! Installs data directories once per process: servers copy them, since an installation takes
//! seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;

use crate::scratch::Scratch;

/// Returns the data directory with this name; the first call installs it. It is removed when the
/// process ends.
pub(crate) fn installed(name: &str, install: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    static HOME: Mutex<Option<Scratch>> = Mutex::new(None);
    let mut home = HOME.lock().expect("no holder of the lock panics");
    if home.is_none() {
        *home = Some(Scratch::new("templates")?);
    }
    let home = home.as_ref().expect("it was just created").path();
    let directory = home.join(name);
    if !directory.exists() {
        let installing = home.join(format!("{name}.part"));
        let _ = fs::remove_dir_all(&installing);
        install(&installing)?;
        fs::rename(&installing, &directory)?;
    }
    Ok(directory)
}
