//! The TCP probe: a connection is accepted, and the TLS handshake if TLS is on.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    Ask, Asking, MonitorAccount, ProbeFailure, ProbeKind, ProbeSetupError, Progress, Target,
    TargetAddress, Tls, TlsUse, messages, stream, tls::TlsStart,
};

/// Time for the server to close its side; then the connection is dropped anyway.
const GOODBYE_MS_MAX: u64 = 100;
/// Enough for the greeting of any protocol.
const GREETING_BYTES_MAX: usize = 4096;

/// Settings of the TCP probe: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpProbe;

impl ProbeKind for TcpProbe {
    fn tls_use(&self) -> TlsUse {
        TlsUse::Never
    }

    fn prepare(
        &self,
        _: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError> {
        Ok(Box::new(Connect(TlsStart::new(&tls)?)))
    }
}

/// Connect, followed by a TLS handshake if TLS is on.
struct Connect(Option<TlsStart>);

impl Ask for Connect {
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a> {
        Box::pin(connect(self.0.as_ref(), target, progress))
    }
}

async fn connect(
    tls: Option<&TlsStart>,
    target: &Target,
    progress: &Progress,
) -> Result<(), ProbeFailure> {
    let mut socket = stream::dial(target).await.map_err(|e| messages::io(&e))?;
    if let (Some(tls), TargetAddress::Tcp(_)) = (tls, &target.address) {
        socket = Box::new(tls.handshake(socket, target, progress).await?);
    }
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
