//! The MySQL and MariaDB probe: a complete login with the monitor account, one query, a COM_QUIT.

mod login;
mod relay;

use mysql_async::prelude::Queryable;

use super::{MonitorAccount, ProbeFailure, ProbeSetupError, Progress, QUERY, Target, Tls};

pub(crate) use self::login::{Login, catch_panic, malformed};

/// Login and query of the probe.
pub(super) struct MysqlProbe {
    login: Login,
    query: String,
}

impl MysqlProbe {
    pub(super) fn new(
        account: MonitorAccount,
        query: String,
        tls: Tls,
    ) -> Result<Self, ProbeSetupError> {
        let login = Login::new(account, tls, "evenkeel-probe")?;
        Ok(Self { login, query })
    }

    pub(super) async fn ask(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> Result<(), ProbeFailure> {
        let mut connection = self.login.connect(target, progress).await?;
        progress.logged_in(QUERY);
        let talk = catch_panic(async {
            let answer = connection.query_drop(&self.query).await;
            if answer.is_ok() {
                progress.passed();
            }
            // Without this COM_QUIT the server counts an aborted client.
            let _ = connection.disconnect().await;
            answer
        });
        match talk.await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.login.classify(error, target, progress).await),
            None => Err(malformed(target).await),
        }
    }
}
