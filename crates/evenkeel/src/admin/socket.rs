//! Binds the control socket with mode 0600 from its creation. Replaces a stale socket, and fails if
//! another process listens on it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Binds the control socket. Creates its directory (0700) if that does not exist.
///
/// Must be called within a tokio runtime. Every error names the path and gives advice.
pub fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    prepare_directory(path)?;
    remove_stale(path)?;
    let socket = bind(path).map_err(|error| explain(path, "cannot listen on it", &error))?;
    UnixListener::from_std(socket.into())
}

fn prepare_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| explain(path, "cannot create its directory", &error))?;
    let found = fs::metadata(directory)
        .map_err(|error| explain(path, "cannot access its directory", &error))?;
    let own = fs::metadata("/proc/self")?.uid();
    // A user who may write to the directory could replace the socket and receive the operator's
    // commands.
    if found.uid() != own && found.uid() != 0 {
        let why = format!(
            "its directory belongs to another user (uid {}); change its owner",
            found.uid()
        );
        return Err(refuse(ErrorKind::PermissionDenied, path, &why));
    }
    if found.mode() & 0o1002 == 0o002 {
        let why = "its directory is writable by everyone; use `chmod o-w` on it";
        return Err(refuse(ErrorKind::PermissionDenied, path, why));
    }
    Ok(())
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| explain(path, "cannot access it", &error))?,
    };
    if !found.file_type().is_socket() {
        return Err(refuse(
            ErrorKind::AlreadyExists,
            path,
            "the path exists and is not a socket; remove it",
        ));
    }
    if somebody_answers(path)? {
        return Err(refuse(
            ErrorKind::AddrInUse,
            path,
            "another process listens on it; stop that process",
        ));
    }
    fs::remove_file(path).map_err(|error| explain(path, "cannot remove the stale socket", &error))
}

fn somebody_answers(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        // A full backlog shows that a process is still listening.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(explain(path, "cannot check whether it is in use", &error)),
        Ok(()) => Ok(true),
    }
}

fn bind(path: &Path) -> io::Result<Socket> {
    let address = SockAddr::unix(path)?;
    // Linux gives the file the mode that its socket had before bind. With bind followed by chmod,
    // another user could connect between the two.
    let unbound = File::from(OwnedFd::from(Socket::new(
        Domain::UNIX,
        Type::STREAM,
        None,
    )?));
    unbound.set_permissions(Permissions::from_mode(0o600))?;
    let socket = Socket::from(OwnedFd::from(unbound));
    socket.bind(&address)?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn explain(path: &Path, what: &str, error: &io::Error) -> io::Error {
    refuse(error.kind(), path, &format!("{what}: {error}; fix this"))
}

fn refuse(kind: ErrorKind, path: &Path, why: &str) -> io::Error {
    let path = path.display();
    io::Error::new(
        kind,
        format!(
            "cannot use control socket {path}: {why}, or set another path with `socket` in [admin]"
        ),
    )
}
