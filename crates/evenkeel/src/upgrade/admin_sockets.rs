//! Holds the admin sockets of a process for the next one, and stops and resumes serving them.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::sync::{mpsc, watch};

use super::state::Purpose;

/// Admin sockets that can be handed over. Dropping this removes the control socket's file, unless
/// another process serves it.
pub(crate) struct AdminSockets {
    /// Duplicates of the sockets, to be passed on.
    pub(crate) sockets: Vec<(Purpose, OwnedFd)>,
    closing: watch::Sender<bool>,
    opening: mpsc::UnboundedSender<Vec<(Purpose, OwnedFd)>>,
    file: Option<PathBuf>,
}

impl AdminSockets {
    /// Creates the holder. Sockets sent to `opening` are served again.
    pub(crate) fn new(
        sockets: Vec<(Purpose, OwnedFd)>,
        closing: watch::Sender<bool>,
        opening: mpsc::UnboundedSender<Vec<(Purpose, OwnedFd)>>,
    ) -> AdminSockets {
        AdminSockets {
            sockets,
            closing,
            opening,
            file: None,
        }
    }

    /// Sets the control socket's file, which is removed together with this process's admin sockets.
    pub(crate) fn own_file(&mut self, path: PathBuf) {
        self.file = Some(path);
    }

    /// Stops accepting requests; those in progress are finished. The sockets in `taken` belong to
    /// another process.
    pub(crate) fn close(&mut self, taken: &[Purpose]) {
        self.closing.send_replace(true);
        self.sockets.retain(|(purpose, _)| taken.contains(purpose));
        let control = self.file.as_ref().map(|path| path.display().to_string());
        if control.is_some_and(|path| taken.contains(&Purpose::Control(path))) {
            self.file = None;
        }
    }
}

impl AdminSockets {
    /// Serves again after the process that took the sockets has exited.
    pub(crate) fn reopen(&mut self) {
        let mut sockets = Vec::new();
        for (purpose, socket) in &self.sockets {
            if let Purpose::Control(path) = purpose {
                self.file = Some(path.into());
            }
            match socket.try_clone() {
                Ok(socket) => sockets.push((purpose.clone(), socket)),
                Err(error) => tracing::error!("cannot reopen the {purpose:?} socket: {error}"),
            }
        }
        self.closing.send_replace(false);
        // Without a receiver this process is about to exit.
        let _ = self.opening.send(sockets);
    }
}

impl Drop for AdminSockets {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        if let Some(path) = &self.file {
            // A missing file is not an error.
            let _ = std::fs::remove_file(path);
        }
    }
}
