//! Tests that PostgreSQL's own programs and subscriptions replicate through Evenkeel.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use evenkeel_lab::{PostgresOptions, eventually, free_port, postgres};
use tempfile::TempDir;

use super::client::{Client, Login};
use super::stage::{Setup, TestBed, admin, start_own, start_postgres};
use crate::harness::{DRIVERS, LIMIT, printed};

const SETUP: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 2,
};

/// Returns the connection string of programs and subscriptions.
fn connection(address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    format!("host={host} port={port} user=replica password=replica dbname=postgres")
}

/// Creates a directory that the user of the servers may write to.
fn create_work_dir() -> TempDir {
    let work_dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(work_dir.path(), Permissions::from_mode(0o777)).unwrap();
    work_dir
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let printed = printed(&output);
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

/// A program that runs until it is stopped.
struct Program(Child);

impl Program {
    fn start(mut command: Command) -> Program {
        Program(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Interrupts the program as Ctrl-C does, and returns its output.
    fn stop(mut self) -> String {
        let pid = i32::try_from(self.0.id()).unwrap();
        #[expect(unsafe_code, reason = "the standard library sends no SIGINT")]
        // SAFETY: the process is our child, and has not been waited for yet.
        unsafe {
            libc::kill(pid, libc::SIGINT)
        };
        let status = self.0.wait().unwrap();
        let printed = std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap();
        assert!(status.success(), "{status}: {printed}");
        printed
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the current WAL segment, waits until it is received, and returns its name.
fn next_segment(into: &Path) -> String {
    let mut admin = admin();
    let segment = admin.value("select pg_walfile_name(pg_current_wal_lsn())");
    admin.run("select pg_logical_emit_message(true, 'evenkeel', 'news')");
    admin.run("select pg_switch_wal()");
    let path = into.join(&segment);
    let waited = eventually(LIMIT, "a segment that was received", || {
        Ok(path.is_file().then_some(()))
    });
    waited.unwrap();
    segment
}

#[test]
fn pg_receivewal_receives_what_is_written() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, SETUP);
        let work_dir = create_work_dir();
        let mut receive = postgres::command("pg_receivewal").unwrap();
        receive.arg(format!("--dbname={}", connection(bed.address)));
        receive
            .args(["--no-loop", "--synchronous", "--directory"])
            .arg(work_dir.path());
        let received = Program::start(receive);
        let starts = eventually(LIMIT, "a first segment", || {
            let mut found = work_dir.path().read_dir()?;
            Ok(found.next().map(|_| ()))
        });
        starts.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.balancer.log()));
        for _ in 0..2 {
            let segment = next_segment(work_dir.path());
            let hash = run(Command::new("sha256sum").arg(work_dir.path().join(&segment)));
            let at_server = admin().value(&format!(
                "select encode(sha256(pg_read_binary_file('pg_wal/{segment}')), 'hex')"
            ));
            assert!(hash.starts_with(&at_server), "{io}: {segment}");
        }
        received.stop();
    }
}

/// A standby that runs on a base backup.
struct Copied<'a> {
    data: &'a Path,
    work_dir: &'a Path,
    port: u16,
}

impl Copied<'_> {
    fn start(&self) {
        let (port, work_dir) = (self.port, self.work_dir.display());
        let options = format!(
            "-p {port} -k {work_dir} -c listen_addresses= -c fsync=off \
             -c max_connections=1000 -c max_wal_senders=16"
        );
        let mut start = postgres::command("pg_ctl").unwrap();
        start.arg("--pgdata").arg(self.data);
        start.arg("--log").arg(self.work_dir.join("log"));
        run(start
            .args(["start", "--wait", "--silent", "--options", &options])
            .stdout(Stdio::null()));
    }

    fn value(&self, text: &str) -> String {
        let mut ask = postgres::command("psql").unwrap();
        ask.args([
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--username=postgres",
        ]);
        ask.arg(format!("--port={}", self.port))
            .arg("--host")
            .arg(self.work_dir);
        run(ask.args(["--dbname=postgres", "--command", text]))
            .trim()
            .to_owned()
    }
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        let mut stop = postgres::command("pg_ctl").unwrap();
        stop.arg("--pgdata").arg(self.data);
        let _ = stop.args(["stop", "--mode=immediate", "--silent"]).output();
    }
}

#[test]
fn a_base_backup_is_a_standby_that_follows() {
    let (_lab, server) = start_own();
    server
        .sql("create table copied as select generate_series(1, 100000) as a")
        .unwrap();
    for io in DRIVERS {
        let setup = Setup {
            service: "query_timeout_ms = 300",
            ..SETUP
        };
        let bed = TestBed::before(&server, io, setup);
        let work_dir = create_work_dir();
        let data = work_dir.path().join("data");
        let mut copy = postgres::command("pg_basebackup").unwrap();
        copy.arg(format!("--dbname={}", connection(bed.address)));
        // Slow enough to exceed the limit of a query.
        copy.args([
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
            "--max-rate=16M",
            "--write-recovery-conf",
        ]);
        run(copy.arg("--pgdata").arg(&data));
        run(postgres::command("pg_verifybackup").unwrap().arg(&data));
        let copied = Copied {
            data: &data,
            work_dir: work_dir.path(),
            port: free_port(),
        };
        copied.start();
        let count = "select count(*) from copied";
        server.sql("insert into copied values (0)").unwrap();
        let all = server.sql(count).unwrap();
        let waited = eventually(LIMIT, "what was written since", || {
            Ok((copied.value(count) == all).then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.balancer.log()));
        let receivers = copied.value("select count(*) from pg_stat_wal_receiver");
        assert_eq!(receivers, "1", "{io}");
    }
}

#[test]
fn a_subscription_gets_what_was_there_and_what_is_inserted() {
    let options = PostgresOptions {
        settings: vec!["wal_level=logical".to_owned()],
        ..PostgresOptions::default()
    };
    let (_publishing, publisher) = start_postgres(options);
    let (_subscribing, subscriber) = start_own();
    let table = "create table news (a int primary key, b text)";
    publisher.sql(table).unwrap();
    publisher.sql("grant all on news to replica").unwrap();
    publisher
        .sql("insert into news select a, 'old' from generate_series(1, 1000) as a")
        .unwrap();
    publisher
        .sql("create publication p for table news")
        .unwrap();
    subscriber.sql(table).unwrap();
    for (round, io) in DRIVERS.into_iter().enumerate() {
        subscriber.sql("truncate news").unwrap();
        let bed = TestBed::before(&publisher, io, SETUP);
        let to = connection(bed.address);
        let subscribe = format!("create subscription s connection '{to}' publication p");
        subscriber.sql(&subscribe).unwrap();
        let login = Login {
            user: "replica",
            password: "replica",
            database: "postgres",
            ..Login::default()
        };
        let mut writer = Client::log_in(bed.address, &login).unwrap();
        let first = 2_000 + 100 * round;
        for number in first..first + 100 {
            writer.run(&format!("insert into news values ({number}, 'new')"));
        }
        let all = 1_000 + 100 * (round + 1);
        let reply = eventually(LIMIT, "all rows at the subscriber", || {
            let count = subscriber.sql("select count(*) from news")?;
            Ok((count == all.to_string()).then_some(()))
        });
        reply.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.balancer.log()));
        subscriber.sql("drop subscription s").unwrap();
        let slots = publisher
            .sql("select count(*) from pg_replication_slots")
            .unwrap();
        assert_eq!(slots, "0", "{io}");
    }
}

#[test]
fn pg_recvlogical_receives_what_is_inserted() {
    let options = PostgresOptions {
        settings: vec!["wal_level=logical".to_owned()],
        ..PostgresOptions::default()
    };
    let (_lab, server) = start_postgres(options);
    server.sql("create table news (a text)").unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, SETUP);
        let work_dir = create_work_dir();
        let file = work_dir.path().join("news");
        let program = || {
            let mut command = postgres::command("pg_recvlogical").unwrap();
            command.arg(format!("--dbname={}", connection(bed.address)));
            command.arg("--slot=recv");
            command
        };
        run(program().args(["--create-slot", "--plugin=test_decoding"]));
        let mut start = program();
        start
            .args(["--start", "--fsync-interval=0", "--file"])
            .arg(&file);
        let receiver = Program::start(start);
        server
            .sql(&format!("insert into news values ('news by {io}')"))
            .unwrap();
        let waited = eventually(LIMIT, "what was inserted", || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            Ok(text.contains(&format!("news by {io}")).then_some(()))
        });
        waited.unwrap_or_else(|error| panic!("{io}: {error}: {}", bed.balancer.log()));
        receiver.stop();
        run(program().arg("--drop-slot"));
    }
}
