//! Loads sysbench's tables into a server.

use std::process::Command;

use anyhow::{Result, bail};

use crate::sysbench::Driver;
use crate::{Server, process, tool};

/// Creates and fills `tables` tables of `rows` rows, as the account `sbtest` over TCP.
pub(crate) fn load(server: &Server, driver: Driver, tables: u32, rows: u32) -> Result<()> {
    let mut command = Command::new(tool::find("sysbench")?);
    process::plain_environment(&mut command);
    command.args(driver.arguments(server.address));
    command
        .arg(format!("--tables={tables}"))
        .arg(format!("--table-size={rows}"));
    command.args(["--threads=2", "oltp_point_select", "prepare"]);
    let output = command.current_dir("/").output()?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stdout);
        bail!("sysbench cannot load {}: {printed}", server.name);
    }
    Ok(())
}
