//! Starts the servers that a suite runs on.

use anyhow::Result;

use super::{Options, Suite, sysbench};
use crate::{Driver, Lab, MariadbOptions, MysqlOptions, PostgresOptions, Server};

impl Suite {
    /// Returns the suite's protocol.
    pub(super) fn driver(self) -> Driver {
        match self {
            Suite::Regress
            | Suite::Pq
            | Suite::Pgbench
            | Suite::Django
            | Suite::Psycopg2Tests
            | Suite::DriversPostgres => Driver::Pgsql,
            _ => Driver::Mysql,
        }
    }

    /// Starts the primary, and a replica if reads are split.
    pub(super) fn servers(self, lab: &Lab, options: &Options) -> Result<Vec<Server>> {
        let replicas = usize::from(options.reads || self == Suite::Sysbench);
        Ok(match self {
            _ if self.driver() == Driver::Pgsql => {
                let options = PostgresOptions {
                    replicas,
                    version: options.version,
                    ..PostgresOptions::default()
                };
                lab.postgres(options)?.servers()
            }
            Suite::PymysqlOnMysql => {
                let options = MysqlOptions {
                    replicas,
                    ..MysqlOptions::default()
                };
                lab.mysql(options)?.servers()
            }
            _ => {
                let usual = MariadbOptions::default();
                let options = MariadbOptions {
                    replicas,
                    sbtest_rows: (self == Suite::Sysbench).then_some(sysbench::ROWS),
                    sbtest_tables: sysbench::TABLES,
                    version: options.mariadb.or(usual.version),
                };
                lab.mariadb(options)?.servers()
            }
        })
    }
}
