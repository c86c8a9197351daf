//! Tests of a server's name that moves to another machine.

use std::io::copy;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use evenkeel_lab::balancer::find_binary;
use evenkeel_lab::{PostgresOptions, Server, eventually, free_port};

use super::client::{Client, Login};
use super::stage::{start_cluster, start_own};
use crate::harness::certificates::file_of_sbtest;
use crate::harness::{LIMIT, engine, loopback};

/// Limit for a move: names are resolved every ten seconds.
const MOVE_LIMIT: Duration = Duration::from_secs(25);

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Forwards an address to a server.
fn lead(from: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(from).unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(to) else {
                continue;
            };
            pass(&client, &server);
            pass(&server, &client);
        }
    });
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let [mut from, mut to] = [from, to].map(|one| one.try_clone().unwrap());
    thread::spawn(move || {
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Starts the program with a separate hosts file.
fn start(work_dir: &Path, names: &Path) -> Running {
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(names)
        .arg(find_binary().unwrap())
        .args(["run", "-c"])
        .arg(work_dir.join("evenkeel.toml"))
        .stderr(fs::File::create(work_dir.join("log")).unwrap())
        .stdin(Stdio::null());
    Running(command.spawn().unwrap())
}

/// The program in front of a name that resolves to one machine, and then to another.
struct NamesBed {
    _running: Running,
    work_dir: PathBuf,
    listen: SocketAddr,
}

impl NamesBed {
    /// Starts the program; `None` if this machine lacks the permissions.
    fn set_up(servers: [&Server; 2], tables: &str) -> Option<NamesBed> {
        let may = Command::new("unshare").args(["--mount", "true"]).status();
        if !may.is_ok_and(|status| status.success()) {
            println!("skipped: no mount namespaces here");
            return None;
        }
        let (port, listen) = (free_port(), loopback());
        let work_dir = std::env::temp_dir().join(format!("evenkeel-names-{}", listen.port()));
        fs::create_dir_all(&work_dir).unwrap();
        for (which, server) in servers.iter().enumerate() {
            lead(SocketAddr::new(machine(which), port), server.address);
        }
        let names = work_dir.join("names");
        fs::write(&names, line(0)).unwrap();
        fs::write(
            work_dir.join("evenkeel.toml"),
            config(&work_dir, listen, port, tables),
        )
        .unwrap();
        Some(NamesBed {
            _running: start(&work_dir, &names),
            work_dir,
            listen,
        })
    }

    /// Moves the name to the other machine.
    fn moves(&self) {
        fs::write(self.work_dir.join("names"), line(1)).unwrap();
    }

    fn client(&self) -> Client {
        let entered = eventually(LIMIT, "a session", || {
            let reached = TcpStream::connect(self.listen).is_ok();
            let log_in = || Client::log_in(self.listen, &Login::default()).ok();
            Ok(reached.then(log_in).flatten())
        });
        entered.unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// Waits until an earlier client is served by that server; at the end no other one was.
    fn until_at(&self, client: &mut Client, server: &Server) {
        let wanted = server.address.port().to_string();
        let moved = eventually(MOVE_LIMIT, "the other machine", || {
            let reply = client.query("show port");
            Ok(reply.contains(&format!("D {wanted}")).then_some(()))
        });
        moved.unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.work_dir.join("log")).unwrap()
    }
}

impl Drop for NamesBed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.work_dir);
    }
}

fn machine(which: usize) -> IpAddr {
    let last = u8::try_from(which + 1).unwrap();
    IpAddr::from([127, 0, 77, last])
}

fn line(which: usize) -> String {
    format!("{} moving.example\n", machine(which))
}

fn config(work_dir: &Path, listen: SocketAddr, port: u16, tables: &str) -> String {
    let socket = work_dir.join("socket");
    format!(
        "{}\n[admin]\nlisten = \"off\"\nsocket = {socket:?}\n\n\
         [[service]]\nname = \"pool\"\nprotocol = \"postgres\"\nlisten = \"{listen}\"\n\
         servers = [\"moving.example:{port}\"]\n\
         [service.server_tls]\nmode = \"off\"\n\
         [service.pool]\nsize = 2\n{tables}",
        engine("auto")
    )
}

/// Tests servers whose roles are not queried.
#[test]
fn nobody_begins_anything_at_a_machine_that_the_name_leads_to_no_more() {
    let ((_first_lab, first), (_second_lab, second)) = (start_own(), start_own());
    let users = file_of_sbtest();
    let auth = format!("[service.auth]\nsource = \"file\"\nusers_file = {users:?}\n");
    let Some(names_bed) = NamesBed::set_up([&first, &second], &auth) else {
        return;
    };
    let (mut client, mut bound) = (names_bed.client(), names_bed.client());
    bound.run("begin");
    let here = first.address.port().to_string();
    assert_eq!(client.value("show port"), here);
    names_bed.moves();
    names_bed.until_at(&mut client, &second);
    // An open transaction is allowed to end.
    assert_eq!(bound.value("show port"), here);
    bound.run("commit");
    names_bed.until_at(&mut bound, &second);
}

/// The former primary lives, and would accept writes.
#[test]
fn nobody_writes_to_a_former_primary_that_the_name_leads_to_no_more() {
    let options = PostgresOptions {
        replicas: 1,
        ..PostgresOptions::default()
    };
    let (_lab, cluster) = start_cluster(options);
    let [first, second] = [&cluster.primary, &cluster.replicas[0]];
    let monitor = "[service.monitor]\nuser = \"postgres\"\npassword = \"postgres\"\n";
    let Some(names_bed) = NamesBed::set_up([first, second], monitor) else {
        return;
    };
    let mut clients = [names_bed.client(), names_bed.client()];
    for client in &mut clients {
        client.run("begin");
    }
    for client in &mut clients {
        client.run("create table if not exists written (a int)");
        client.run("commit");
    }
    second.sql("select pg_promote()").unwrap();
    names_bed.moves();
    for client in &mut clients {
        names_bed.until_at(client, second);
        client.run("insert into written values (1)");
    }
    let mut former = Client::connect(first.address);
    assert_eq!(former.value("select count(*) from written"), "0");
}
