//! The TCP probe: a connection is accepted.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{ProbeFailure, Progress, Target, messages, stream};

/// Time for the server to close its side; then the connection is dropped anyway.
const GOODBYE_MS_MAX: u64 = 100;
/// Enough for the greeting of any protocol.
const GREETING_BYTES_MAX: usize = 4096;

pub(super) async fn ask(target: &Target, progress: &Progress) -> Result<(), ProbeFailure> {
    let mut socket = stream::dial(target).await.map_err(|e| messages::io(&e))?;
    progress.passed();
    // A close with an unread greeting in the buffer would be a reset. Therefore this side shuts
    // down first, and reads until the server ends, too.
    let goodbye = async {
        socket.shutdown().await?;
        let mut greeting = [0; GREETING_BYTES_MAX];
        while socket.read(&mut greeting).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(Duration::from_millis(GOODBYE_MS_MAX), goodbye).await;
    Ok(())
}
