//! The MySQL and MariaDB probe: a complete login with the monitor account, one query, a COM_QUIT.

mod encrypt;
mod login;
mod relay;

use evenkeel_wire::SqlProtocol;

use super::database::{Database, DatabaseProbe};

pub(crate) use self::encrypt::Packets;
pub(crate) use self::login::{Login, catch_panic, malformed};

/// Settings of the MySQL probe.
pub type MysqlProbe = DatabaseProbe<Mysql>;

/// MySQL and MariaDB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mysql;

impl Database for Mysql {
    const PROTOCOL: SqlProtocol = SqlProtocol::Mysql;
    // The greeting.
    const SPEAKS_FIRST: bool = true;
    type Login = Login;
}
