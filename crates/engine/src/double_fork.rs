//! Starts the new process through an intermediate one, which ends once the new one serves. The new
//! process is then a child of the first process, as service managers expect of a main process.
//! systemd would not wait for the exit of another process's child.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Offset that shells add to a signal's number in the exit status. Used if the signal does not end
/// this process.
const SIGNAL_BASE: i32 = 128;

/// Number of descriptors to close one by one if the system has no `close_range`.
const DESCRIPTORS_MAX: i32 = 65_536;

/// Starts the command as a grandchild. The child waits for it and exits with the same status, or is
/// killed to detach it.
pub fn start(mut command: Command) -> io::Result<(Child, u32)> {
    let (mut reader, mut writer) = io::pipe()?;
    #[expect(unsafe_code, reason = "std has no other way to fork a second time")]
    // SAFETY: between fork and exec it makes system calls only, and touches no lock or heap.
    unsafe {
        command.pre_exec(move || fork_and_wait(&mut writer));
    }
    let child = command.spawn()?;
    // Closes the copies of the pipe's end and of the new process's end of the socket.
    drop(command);
    let pid = read_pid(&mut reader)?;
    Ok((child, pid))
}

fn read_pid(reader: &mut PipeReader) -> io::Result<u32> {
    let mut pid = [0; size_of::<i32>()];
    reader.read_exact(&mut pid)?;
    Ok(i32::from_ne_bytes(pid).cast_unsigned())
}

/// Forks again. Returns in the new process only: the intermediate one waits for it.
fn fork_and_wait(writer: &mut PipeWriter) -> io::Result<()> {
    #[expect(unsafe_code, reason = "std has no fork")]
    // SAFETY: fork without a stack of its own; what follows in both is system calls only.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    match i32::try_from(pid) {
        Ok(0) => Ok(()),
        Ok(pid @ 1..) => {
            let sent = writer.write_all(&pid.to_ne_bytes());
            wait_for(pid, sent.is_ok())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

#[expect(
    unsafe_code,
    reason = "a process made by fork may use system calls only"
)]
fn wait_for(pid: i32, is_known: bool) -> ! {
    // SAFETY: system calls with numbers, and one with a live integer.
    unsafe {
        // Ends this process together with the thread that started it, and so with the old process.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Closes everything that the old process has open: sessions, sockets, the upgrade socket.
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) < 0 {
            (0..DESCRIPTORS_MAX).for_each(|descriptor| {
                libc::close(descriptor);
            });
        }
        if !is_known {
            libc::kill(pid, libc::SIGKILL);
        }
        let mut status = 0;
        while libc::waitpid(pid, &raw mut status, 0) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                libc::_exit(SIGNAL_BASE);
            }
        }
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
            libc::_exit(SIGNAL_BASE + signal);
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}
