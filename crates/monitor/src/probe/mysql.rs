//! The MySQL and MariaDB probe: a complete login with the monitor account, one query, a COM_QUIT.

mod encrypt;
mod login;
mod relay;

use evenkeel_wire::SqlProtocol;
use mysql_async::prelude::Queryable;

use super::{
    Ask, Asking, DEFAULT_QUERY, MonitorAccount, ProbeFailure, ProbeKind, ProbeSetupError, Progress,
    QUERY, Target, Tls, TlsUse,
};

pub(crate) use self::encrypt::Packets;
pub(crate) use self::login::{Login, catch_panic, malformed};

/// Settings of the MySQL probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlProbe {
    /// One statement; its rows are read and discarded. Default `SELECT 1`.
    pub query: String,
}

impl Default for MysqlProbe {
    fn default() -> Self {
        Self {
            query: DEFAULT_QUERY.to_owned(),
        }
    }
}

impl ProbeKind for MysqlProbe {
    fn keys(&self) -> &'static [&'static str] {
        &["query"]
    }

    fn query_mut(&mut self) -> Option<&mut String> {
        Some(&mut self.query)
    }

    fn sql_protocol(&self) -> Option<SqlProtocol> {
        Some(SqlProtocol::Mysql)
    }

    // The greeting.
    fn server_speaks_first(&self) -> bool {
        true
    }

    fn tls_use(&self) -> TlsUse {
        TlsUse::AsSessions
    }

    fn prepare(
        &self,
        account: Option<MonitorAccount>,
        tls: Tls,
    ) -> Result<Box<dyn Ask>, ProbeSetupError> {
        let account = account.ok_or(ProbeSetupError::MissingAccount("mysql"))?;
        Ok(Box::new(LoginAndQuery {
            login: Login::new(account, tls, "evenkeel-probe")?,
            query: self.query.clone(),
        }))
    }
}

/// Login and query of the probe.
struct LoginAndQuery {
    login: Login,
    query: String,
}

impl LoginAndQuery {
    async fn log_in_and_query(
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

impl Ask for LoginAndQuery {
    fn ask<'a>(&'a self, target: &'a Target, progress: &'a Progress) -> Asking<'a> {
        Box::pin(self.log_in_and_query(target, progress))
    }
}
