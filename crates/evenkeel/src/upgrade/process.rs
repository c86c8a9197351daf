//! Identifies another process, without confusing it with a later one of the same id.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, identified when it was found.
#[derive(Debug)]
pub(crate) struct Process {
    /// `None` if the process had already exited when it was found.
    descriptor: Option<OwnedFd>,
}

impl Process {
    pub(crate) fn find(pid: u32) -> Process {
        let pid = Pid::from_raw(pid.cast_signed());
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        Process {
            descriptor: pid.and_then(open),
        }
    }

    /// Returns a descriptor that becomes readable when the process exits.
    pub(crate) fn into_descriptor(self) -> Option<OwnedFd> {
        self.descriptor
    }

    /// Returns whether the process exits within this time, or has exited already.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let Some(descriptor) = &self.descriptor else {
            return true;
        };
        let limit = Timespec::try_from(limit).ok();
        let mut ended = [PollFd::new(descriptor, PollFlags::IN)];
        poll(&mut ended, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Sends a signal. Does nothing if the process had already exited when it was found.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.descriptor {
            Some(descriptor) => Ok(pidfd_send_signal(descriptor, signal)?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_ends_when_it_is_told_to_and_not_before() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::find(child.id());
        assert!(!process.ends_within(Duration::ZERO));
        process.signal(Signal::KILL).unwrap();
        assert!(process.ends_within(Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(process.ends_within(Duration::ZERO));
        assert!(Process::find(child.id()).ends_within(Duration::ZERO));
    }
}
