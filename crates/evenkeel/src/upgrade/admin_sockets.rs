//! The admin door of a process as the next one gets it: the sockets, and how to stop answering.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use tokio::sync::{mpsc, watch};

use super::state::Purpose;

/// What the world needs to hand the admin door over. The control socket's file is removed with it,
/// unless another process answers there.
pub(crate) struct AdminSockets {
    /// The sockets once more, so that they can be passed on.
    pub(crate) sockets: Vec<(Purpose, OwnedFd)>,
    closing: watch::Sender<bool>,
    opening: mpsc::UnboundedSender<Vec<(Purpose, OwnedFd)>>,
    file: Option<PathBuf>,
}

impl AdminSockets {
    /// What is sent to `opening` is to be served once more.
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

    /// From now on the control socket's file ends with us.
    pub(crate) fn own_file(&mut self, path: PathBuf) {
        self.file = Some(path);
    }

    /// Answers nobody new; what is being answered is finished. `taken` belongs to another process.
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
    /// Answers again, because the process that had them is gone.
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
        // Without a receiver the process is about to end.
        let _ = self.opening.send(sockets);
    }
}

impl Drop for AdminSockets {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        if let Some(path) = &self.file {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}
