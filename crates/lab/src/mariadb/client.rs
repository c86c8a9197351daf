//! Queries a MariaDB server as its superuser, over its private Unix socket.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::os_user;
use crate::lab::ServerSlot;
use crate::{process, tool};

pub(crate) struct Client {
    program: PathBuf,
    user: String,
    slot: ServerSlot,
}

impl Client {
    pub(crate) fn new(slot: &ServerSlot) -> Result<Client> {
        Ok(Client {
            program: tool::find("mariadb")?,
            user: os_user()?,
            slot: slot.clone(),
        })
    }

    pub(crate) fn is_answered(&self) -> bool {
        socket(&self.slot).exists() && self.sql("SELECT 1").is_ok()
    }

    /// Returns the result with columns separated by tabs, rows by newlines.
    pub(crate) fn sql(&self, statements: &str) -> Result<String> {
        self.run(&["--skip-column-names"], statements)
    }

    /// Returns the first row by column names; empty if there is none.
    pub(crate) fn row(&self, statement: &str) -> Result<HashMap<String, String>> {
        let answer = self.run(&[], statement)?;
        let mut lines = answer.lines();
        let names = lines.next().unwrap_or_default().split('\t');
        let values = lines.next().unwrap_or_default().split('\t');
        Ok(names
            .map(str::to_owned)
            .zip(values.map(str::to_owned))
            .collect())
    }

    pub(crate) fn connect_command(&self) -> String {
        let (host, port) = (self.slot.address.ip(), self.slot.address.port());
        format!("mariadb -h {host} -P {port} -u sbtest -psbtest sbtest")
    }

    fn run(&self, options: &[&str], statements: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        process::plain_environment(&mut command);
        command
            .args(["--no-defaults", "--batch", "--connect-timeout=5"])
            .args(options)
            .arg(format!("--socket={}", socket(&self.slot).display()))
            .arg(format!("--user={}", self.user));
        let output = command
            .arg("--execute")
            .arg(statements)
            .current_dir("/")
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?
            .trim_end_matches('\n')
            .to_owned())
    }
}

pub(crate) fn socket(slot: &ServerSlot) -> PathBuf {
    slot.directory.join("sock")
}
