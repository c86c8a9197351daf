//! Tests how a stranger begins: `evenkeel init`, `run` without a file, and the errors that clients
//! receive while no server can be used.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use evenkeel_lab::{
    Balancer, Lab, MariadbOptions, PostgresOptions, Server, balancer::find_binary, eventually,
    free_port,
};
use harness::{LIMIT, loopback, printed};

/// Much less than `login_timeout_ms` and `wait_ms` of `[service.failover]`.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Time in which probes and role queries have shown the faults of all servers.
const PROBED: Duration = Duration::from_secs(3);

/// Runs `evenkeel init` in a directory.
fn init(directory: &Path, arguments: &[&str], password: &str) -> Output {
    Command::new(find_binary().unwrap())
        .current_dir(directory)
        .arg("init")
        .args(arguments)
        .env_remove("PGUSER")
        .env_remove("MYSQL_USER")
        .env("PGPASSWORD", password)
        .env("MYSQL_PWD", password)
        .output()
        .unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Runs a statement as a client of that address.
fn client(protocol: &str, address: SocketAddr, user: &str, statement: &str) -> Output {
    let port = address.port().to_string();
    let mut command = match protocol {
        "postgres" => {
            let url = format!("host=127.0.0.1 port={port} user={user} dbname=sbtest");
            let mut command = Command::new("psql");
            command.args(["-X", "-A", "-t", "-d", &url, "-c", statement]);
            command.env("PGPASSWORD", "sbtest");
            command
        }
        _ => {
            let mut command = Command::new("mariadb");
            let user = format!("-u{user}");
            command.args([
                "--no-defaults",
                "--ssl=0",
                "-h127.0.0.1",
                "-P",
                &port,
                &user,
            ]);
            command.args(["-psbtest", "-N", "-e", statement]);
            command
        }
    };
    command.output().unwrap()
}

/// Checks a written file and starts Evenkeel with it, at a free address.
fn start(directory: &Path, from: &str) -> (Balancer, SocketAddr) {
    let file = directory.join("evenkeel.toml");
    let check = Command::new(find_binary().unwrap())
        .args(["check", "-c"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", printed(&check));
    let address = loopback();
    let password = directory.join("evenkeel.password");
    let config = read(&file)
        .replace(from, &address.to_string())
        .replace("\"evenkeel.password\"", &format!("{password:?}"));
    (Balancer::start(&config).unwrap(), address)
}

fn answers(protocol: &str, address: SocketAddr, statement: &str) -> String {
    let answer = eventually(LIMIT, "an answer", || {
        let output = client(protocol, address, "sbtest", statement);
        let text = printed(&output);
        Ok(output.status.success().then_some(text))
    });
    answer.unwrap().trim().to_owned()
}

#[test]
fn a_file_for_postgres_servers_is_written_checked_and_serves_clients() {
    let lab = Lab::new("init-postgres").unwrap();
    let options = PostgresOptions {
        replicas: 1,
        ..PostgresOptions::default()
    };
    let cluster = lab.postgres(options).unwrap();
    let servers = cluster.servers();
    let [primary, replica] = [&servers[0], &servers[1]].map(|one| one.address.to_string());
    let nowhere = format!("127.0.0.1:{}", free_port());
    let home = tempfile::tempdir().unwrap();
    let from = format!("{replica},{primary},{nowhere}");
    let run = |more: &[&str]| {
        let arguments = [&["--from", &from, "--output", "evenkeel.toml"], more].concat();
        init(home.path(), &arguments, "it's secret")
    };
    let first = run(&[]);
    let text = printed(&first);
    assert!(first.status.success(), "{text}");
    let refused = "the server refused the monitor account 'evenkeel'";
    let unreached = format!("{nowhere}: connection refused");
    for words in [refused, &unreached, "run evenkeel.sql on the primary"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let again = run(&[]);
    assert_eq!(again.status.code(), Some(2));
    assert!(printed(&again).contains("--force"), "{}", printed(&again));
    let sql = read(home.path().join("evenkeel.sql"));
    cluster.primary.sql(&sql).unwrap();
    cluster.wait_caught_up().unwrap();
    let second = run(&["--force"]);
    assert!(second.status.success(), "{}", printed(&second));
    assert!(
        !printed(&second).contains("evenkeel.sql"),
        "{}",
        printed(&second)
    );
    let written = read(home.path().join("evenkeel.toml"));
    let listed = format!("servers  = [\"{primary}\", \"{replica}\"]");
    for words in [
        &listed,
        "replica of",
        "public.evenkeel_login($1)",
        "reads = true",
    ] {
        assert!(written.contains(words), "{words}: {written}");
    }
    assert!(!written.contains("secret"), "{written}");
    let (_balancer, address) = start(home.path(), "127.0.0.1:6432");
    assert_eq!(
        answers("postgres", address, "select current_user"),
        "sbtest"
    );
}

/// Uncomments the lines of a written file in which clients prove their passwords at a server, and
/// makes the certificate as the file says.
fn use_login_source(directory: &Path) {
    let file = directory.join("evenkeel.toml");
    let written = read(&file);
    let (before, after) = written.split_once("# source = \"login\"").unwrap();
    let (lines, command) = after.split_once("# Clients then send").unwrap();
    let before = before.replace("# [service.auth]", "[service.auth]");
    let query = before.lines().filter(|line| !line.starts_with("query"));
    let query: Vec<_> = query.collect();
    let lines = lines.replace("\n# ", "\n").replace("\n#\n", "\n\n");
    let path = |name: &str| format!("{:?}", directory.join(name));
    let lines = lines.replace("\"evenkeel.crt\"", &path("evenkeel.crt"));
    let lines = lines.replace("\"evenkeel.key\"", &path("evenkeel.key"));
    let text = format!("{}\nsource = \"login\"{lines}# {command}", query.join("\n"));
    std::fs::write(&file, text).unwrap();
    let (_, openssl) = command.split_once("openssl").unwrap();
    let (openssl, _) = openssl.split_once(".crt\n").unwrap();
    let openssl = format!("openssl{}.crt", openssl.replace("\\\n#", ""));
    let made = Command::new("sh")
        .args(["-c", &openssl])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{openssl}: {}", printed(&made));
}

/// TO SEE THIS RED: leave the certificate out of the lines.
#[test]
fn a_file_of_an_account_that_reads_no_hashes_has_the_lines_with_which_clients_log_in() {
    let lab = Lab::new("init-poor").unwrap();
    let cluster = lab.postgres(PostgresOptions::default()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let grants = "create role poor login password 'poor'; grant pg_monitor to poor";
    cluster.primary.sql(grants).unwrap();
    let from = cluster.primary.address.to_string();
    let arguments = [
        "--from",
        &from,
        "--user",
        "poor",
        "--output",
        "evenkeel.toml",
    ];
    let output = init(home.path(), &arguments, "poor");
    let text = printed(&output);
    assert!(text.contains("use `source = \"login\"`"), "{text}");
    use_login_source(home.path());
    let (_balancer, address) = start(home.path(), "127.0.0.1:6432");
    let who = answers("postgres", address, "select current_user");
    assert_eq!(who, "sbtest");
}

#[test]
fn a_file_for_a_mariadb_server_is_written_checked_and_serves_clients() {
    let lab = Lab::new("init-mariadb").unwrap();
    let cluster = lab.mariadb(MariadbOptions::default()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let address = cluster.primary.address.to_string();
    let from = ["--from", &address, "--output", "evenkeel.toml"];
    let first = init(home.path(), &from, "it's secret");
    assert!(first.status.success(), "{}", printed(&first));
    let sql = read(home.path().join("evenkeel.sql"));
    assert!(sql.contains("GRANT SELECT ON mysql.global_priv"), "{sql}");
    cluster.primary.sql(&sql).unwrap();
    let second = init(
        home.path(),
        &[&from[..], &["--force"]].concat(),
        "it's secret",
    );
    let text = printed(&second);
    assert!(
        second.status.success() && !text.contains("missing"),
        "{text}"
    );
    let (_balancer, address) = start(home.path(), "127.0.0.1:3307");
    let user = answers(
        "mysql",
        address,
        "select substring_index(current_user(), '@', 1)",
    );
    assert_eq!(user, "sbtest");
    // An account that lacks grants receives their names.
    let grants = "CREATE USER poor@'%' IDENTIFIED BY 'poor'";
    cluster.primary.sql(grants).unwrap();
    let poor = init(
        home.path(),
        &[&from[..2], &["--user", "poor"]].concat(),
        "poor",
    );
    let text = printed(&poor);
    assert!(
        text.contains("missing: GRANT SLAVE MONITOR ON *.*"),
        "{text}"
    );
    assert!(
        text.contains("missing: GRANT SELECT ON mysql.global_priv"),
        "{text}"
    );
}

/// Starts a service whose servers cannot be used, and checks that a client receives the reason at
/// once.
fn check_fault((protocol, server): (&str, &Server), more: (&str, &str), words: &[&str]) {
    let (others, tables) = more;
    let address = loopback();
    let config = format!(
        "[[service]]\nname = \"s\"\nprotocol = \"{protocol}\"\nlisten = \"{address}\"\n\
         servers = [\"{}\"{others}]\n{tables}\n",
        server.address
    );
    let _balancer = Balancer::start(&config).unwrap();
    // At the start, and after the probes and role queries.
    let start = Instant::now();
    let mut last = String::new();
    while start.elapsed() < PROBED {
        let begin = Instant::now();
        let output = client(protocol, address, "sbtest", "select 1");
        let (text, took) = (printed(&output), begin.elapsed());
        assert!(
            !output.status.success() && took < AT_ONCE,
            "{took:?}: {text}"
        );
        last = text;
    }
    // Another fault may be known first, of the other server or of another query.
    for word in words {
        assert!(last.contains(word), "{word:?} in {last}");
    }
}

const WRONG: &str = "[service.monitor]\nuser = \"postgres\"\npassword = \"wrong\"";

#[test]
fn a_client_receives_the_fault_of_postgres_servers_at_once() {
    let lab = Lab::new("faults-postgres").unwrap();
    let cluster = lab.postgres(PostgresOptions::default()).unwrap();
    let server = ("postgres", &cluster.primary);
    let dead = format!(", \"127.0.0.1:{}\"", free_port());
    let monitor = "[service.monitor]\nuser = \"poor\"\npassword = \"poor\"";
    cluster
        .primary
        .sql("CREATE ROLE poor LOGIN PASSWORD 'poor'")
        .unwrap();
    let refused = "refused the monitor account";
    check_fault(server, ("", WRONG), &[refused]);
    check_fault(server, (&dead, WRONG), &[refused]);
    check_fault(
        server,
        ("", monitor),
        &["GRANT SELECT ON pg_authid TO poor"],
    );
    let verify = format!("{monitor}\n[service.server_tls]\nmode = \"verify\"");
    let both = ["does not support TLS: turn it on there", "mode = \"off\""];
    check_fault(server, ("", &verify), &both);
    check_fault(server, (&dead, &verify), &both);
}

#[test]
fn a_client_receives_the_fault_of_a_mariadb_server_at_once() {
    let lab = Lab::new("faults-mariadb").unwrap();
    let cluster = lab.mariadb(MariadbOptions::default()).unwrap();
    let server = ("mysql", &cluster.primary);
    let dead = format!(", \"127.0.0.1:{}\"", free_port());
    cluster
        .primary
        .sql("CREATE USER poor@'%' IDENTIFIED BY 'poor'")
        .unwrap();
    let monitor = "[service.monitor]\nuser = \"poor\"\npassword = \"poor\"";
    check_fault(server, ("", WRONG), &["refused the monitor account"]);
    check_fault(server, (&dead, WRONG), &["refused the monitor account"]);
    check_fault(server, ("", monitor), &["GRANT SLAVE MONITOR ON *.*"]);
    let grants = "GRANT REPLICATION CLIENT, SLAVE MONITOR, SHOW VIEW, TRIGGER ON *.* TO poor@'%'";
    cluster.primary.sql(grants).unwrap();
    check_fault(server, ("", monitor), &["mysql.global_priv"]);
    let verify = format!("{monitor}\n[service.server_tls]\nmode = \"verify\"");
    check_fault(
        server,
        ("", &verify),
        &["does not support TLS", "mode = \"off\""],
    );
}

#[test]
fn a_service_runs_without_a_file_from_urls_and_prints_its_file() {
    let lab = Lab::new("urls").unwrap();
    let cluster = lab.postgres(PostgresOptions::default()).unwrap();
    let home = tempfile::tempdir().unwrap();
    let address = loopback();
    let run = |more: &[&str]| {
        let mut command = Command::new(find_binary().unwrap());
        let listen = format!("postgres://{address}");
        let to = format!("postgres://postgres@{}", cluster.primary.address);
        command.args([
            "run", "--listen", &listen, "--to", &to, "--admin", "off", "--socket",
        ]);
        command
            .arg(home.path().join("s.sock"))
            .args(more)
            .env("PGPASSWORD", "postgres");
        command
    };
    let file = run(&["--print-config"]).output().unwrap();
    let text = printed(&file);
    assert!(
        file.status.success() && !text.contains("= \"postgres\"\npassword ="),
        "{text}"
    );
    assert!(
        text.contains("[service.monitor]") && text.contains("password_file"),
        "{text}"
    );
    let mut running = run(&[]).spawn().unwrap();
    let user = answers("postgres", address, "select current_user");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(user, "sbtest");
}
