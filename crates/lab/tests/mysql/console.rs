//! Tests the console with MariaDB's own client, and its effects on clients of the service.

use std::net::SocketAddr;
use std::process::Command;

use super::client::Client;
use super::stage::{Setup, TestBed, own_schema};
use crate::harness::{DRIVERS, loopback, wait_until};

const TOKEN: &str = "open sesame";

/// A service with a pool of two, and its console.
pub(crate) struct ConsoleBed {
    pub(crate) bed: TestBed,
    pub(crate) console: SocketAddr,
}

impl ConsoleBed {
    pub(crate) fn set_up(io: &str, service: &str) -> ConsoleBed {
        let console = loopback();
        let tables =
            format!("[admin]\nlisten = \"off\"\nmysql = \"{console}\"\ntoken = {TOKEN:?}\n");
        let setup = Setup {
            pool: "size = 2",
            service,
            tables: &tables,
            workers: 2,
        };
        let bed = TestBed::set_up(io, setup);
        ConsoleBed { bed, console }
    }

    /// Returns the client program's output: rows with tab-separated values. The error is its
    /// message.
    fn run(&self, (user, password): (&str, &str), text: &str) -> Result<Vec<String>, String> {
        let port = self.console.port().to_string();
        let output = Command::new("mariadb")
            .args([
                "--no-defaults",
                "--protocol=tcp",
                "-h127.0.0.1",
                "-P",
                &port,
            ])
            .args(["-u", user, "--batch", "--skip-column-names", "-e", text])
            .env("MYSQL_PWD", password)
            .output()
            .unwrap();
        match output.status.success() {
            true => {
                let printed = String::from_utf8(output.stdout).unwrap();
                Ok(printed.lines().map(str::to_owned).collect())
            }
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Runs a command as a read-only user.
    pub(crate) fn show(&self, text: &str) -> Vec<String> {
        let shown = self.run(("somebody", ""), text);
        shown.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Runs a command with the token.
    fn run_admin(&self, text: &str) -> Result<Vec<String>, String> {
        self.run(("admin", TOKEN), text)
    }
}

#[test]
fn what_clients_do_is_shown_to_mariadb_s_own_client() {
    let console_bed = ConsoleBed::set_up("auto", "");
    let mut busy = console_bed.bed.client();
    busy.run("begin");
    let mut bound = console_bed.bed.client();
    bound.run("create temporary table console_bound (a int)");
    let mut seen = Vec::new();
    wait_until(&console_bed.bed.balancer, "what each of them does", || {
        seen = console_bed.show("SELECT client_state FROM evenkeel.clients ORDER BY client_state");
        seen == ["idle in transaction", "pinned"]
    });
    let pools = console_bed.show("SELECT user, cl_active, sv_active, sv_idle, service FROM pools");
    assert_eq!(pools, ["sbtest\t2\t2\t0\tpool"]);
    let databases = console_bed.show("SELECT name, current_client_connections FROM databases");
    assert_eq!(databases, [format!("{}\t2", own_schema())]);
    let joined = console_bed.show(
        "SELECT s.server, count(*), min(c.id) = max(c.id) FROM clients c \
         JOIN servers s ON s.client_id = c.id GROUP BY s.server ORDER BY 2 DESC",
    );
    assert_eq!(joined.len(), 1, "{joined:?}");
    assert!(joined[0].ends_with("\t2\t0"), "{joined:?}");
    let bound_by = console_bed.show("SELECT pinned_by FROM clients WHERE client_state = 'pinned'");
    let expected = format!("temporary tables ({}.console_bound)", own_schema());
    assert_eq!(bound_by, [expected]);
    let statement =
        console_bed.show("SELECT pinned_by_statement FROM clients WHERE client_state = 'pinned'");
    assert_eq!(statement, ["create temporary table console_bound (a int)"]);
    assert_eq!(console_bed.show("SHOW SERVERS").len(), 2);
    assert_eq!(console_bed.show("SHOW PROCESSLIST").len(), 2);
    for what in [
        "DATABASES",
        "USERS",
        "LISTS",
        "CONFIG",
        "VERSION",
        "STATS",
        "VARIABLES",
    ] {
        assert!(
            !console_bed.show(&format!("SHOW {what}")).is_empty(),
            "{what}"
        );
    }
    assert_eq!(
        console_bed.show("SELECT @@version_comment LIMIT 1; USE x; SELECT DATABASE()")[1],
        "x"
    );
    let help = console_bed.show("SHOW HELP");
    assert!(help.len() > 5 && help[0].contains("Commands"), "{help:?}");
    // The client is still connected afterwards.
    busy.run("commit");
}

#[test]
fn who_has_the_token_may_change_things_and_nobody_else() {
    for io in DRIVERS {
        let console_bed = ConsoleBed::set_up(io, "");
        for wrong in ["", "shut", "open sesame!"] {
            let error = console_bed.run(("admin", wrong), "SHOW POOLS").unwrap_err();
            assert!(error.contains("1045"), "{wrong}: {error}");
        }
        for text in ["PAUSE", "KILL 1", "RELOAD", "KILL sbtest", "RECONNECT"] {
            let error = console_bed.run(("somebody", ""), text).unwrap_err();
            assert!(error.contains("1227"), "{text}: {error}");
        }
        let mut client = console_bed.bed.client();
        let number = client.value("select connection_id()");
        console_bed.run_admin(&format!("KILL {number}")).unwrap();
        wait_until(&console_bed.bed.balancer, "its end", || {
            console_bed
                .show("SELECT id FROM clients")
                .iter()
                .all(|id| *id != number)
        });
    }
}

#[test]
fn a_pause_by_mysql_s_words_holds_clients_until_it_ends() {
    let console_bed = ConsoleBed::set_up("auto", "");
    let reply = console_bed.run_admin("PAUSE sbtest").unwrap_err();
    assert!(reply.contains("PAUSE orders/"), "{reply}");
    console_bed.run_admin("PAUSE").unwrap();
    assert!(console_bed.show("SHOW SERVERS").is_empty());
    let (address, login) = (console_bed.bed.address, console_bed.bed.login());
    let waiting = std::thread::spawn(move || Client::with(address, &login).value("select 7"));
    wait_until(&console_bed.bed.balancer, "who waits", || {
        console_bed.bed.status()["database"]["all_paused"] == true
    });
    assert!(!waiting.is_finished());
    console_bed.run_admin("RESUME").unwrap();
    assert_eq!(waiting.join().unwrap(), "7");
}
