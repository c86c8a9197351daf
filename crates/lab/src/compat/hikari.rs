//! Runs HikariCP, the pool of most Java services, with thirty connections on drivers for MariaDB
//! and MySQL. The program in `hikari/` does the same with each of them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use super::source::Source;
use super::step::Step;
use super::verdict::{Case, Cases, Verdict};
use crate::program::Program;
use crate::{Server, process, tool};

pub(super) const HIKARI: &str = "7.0.2";

/// A Java driver: one Maven artifact.
struct JavaDriver {
    name: &'static str,
    group: &'static str,
    artifact: &'static str,
    version: &'static str,
    /// Scheme of its URLs.
    scheme: &'static str,
    /// Options that it always needs.
    options: &'static [&'static str],
    /// Options of [`OPTIONS`] that it does not support.
    lacks: &'static [&'static str],
}

/// The driver that MariaDB recommends, its predecessor, which is still common, and MySQL's.
const DRIVERS: [JavaDriver; 3] = [
    JavaDriver {
        name: "mariadb-3.5",
        group: "org.mariadb.jdbc",
        artifact: "mariadb-java-client",
        version: "3.5.9",
        scheme: "jdbc:mariadb",
        options: &["sslMode=disable"],
        lacks: &[],
    },
    JavaDriver {
        name: "mariadb-2.7",
        group: "org.mariadb.jdbc",
        artifact: "mariadb-java-client",
        version: "2.7.13",
        scheme: "jdbc:mariadb",
        options: &[],
        lacks: &[],
    },
    JavaDriver {
        name: "mysql-9",
        group: "com.mysql",
        artifact: "mysql-connector-j",
        version: "9.7.0",
        scheme: "jdbc:mysql",
        options: &["sslMode=DISABLED", "allowPublicKeyRetrieval=true"],
        lacks: &["useMysqlMetadata"],
    },
];

/// Options of the drivers; each set is a separate run.
const OPTIONS: [(&str, &[&str]); 4] = [
    ("as it comes", &[]),
    ("useServerPrepStmts", &["useServerPrepStmts=true"]),
    ("useMysqlMetadata", &["useMysqlMetadata=true"]),
    (
        "sessionVariables",
        &[
            "sessionVariables=sql_mode='ANSI_QUOTES,STRICT_TRANS_TABLES',wait_timeout=1234,\
           sql_select_limit=100000",
        ],
    ),
];

const SOURCES: [(&str, &str); 5] = [
    ("Crowd.java", include_str!("hikari/Crowd.java")),
    ("Main.java", include_str!("hikari/Main.java")),
    ("Report.java", include_str!("hikari/Report.java")),
    ("Single.java", include_str!("hikari/Single.java")),
    ("Sql.java", include_str!("hikari/Sql.java")),
];

/// Objects that the program expects.
const PREPARED: &str = "\
    CREATE DATABASE hikari DEFAULT CHARACTER SET utf8mb4;\
    CREATE DATABASE hikari_other DEFAULT CHARACTER SET utf8mb4;\
    GRANT ALL ON hikari.* TO sbtest@'127.0.0.1';\
    GRANT ALL ON hikari_other.* TO sbtest@'127.0.0.1';\
    GRANT SELECT ON mysql.proc TO sbtest@'127.0.0.1';\
    CREATE TABLE hikari.notes (id BIGINT PRIMARY KEY AUTO_INCREMENT, tag VARCHAR(64) NOT NULL, \
    number INT, amount DECIMAL(20, 6), word VARCHAR(200), bytes BLOB, moment DATETIME(6), KEY (tag));\
    CREATE TABLE hikari_other.notes LIKE hikari.notes;\
    CREATE TABLE hikari.home (place VARCHAR(20));\
    INSERT INTO hikari.home VALUES ('hikari');\
    CREATE TABLE hikari_other.home (place VARCHAR(20));\
    INSERT INTO hikari_other.home VALUES ('hikari_other');\
    CREATE PROCEDURE hikari.twice(IN n INT, OUT m INT) SET m = 2 * n;";

/// Limit for a run, which takes half a minute if nothing is stuck.
const LIMIT: Duration = Duration::from_secs(600);

/// Returns why the suite cannot run on this machine; `None` if it can.
pub(super) fn missing() -> Option<String> {
    let mut programs = ["java", "javac", "mvn"].into_iter();
    let absent = programs.find_map(|program| tool::find(program).err());
    let error = absent.or_else(|| drivers().err())?;
    Some(format!("{error:#}"))
}

/// Returns the directory with the artifacts: `pool`, and one for each driver.
fn drivers() -> Result<PathBuf> {
    let mut name = format!("hikari-{HIKARI}");
    let mut arguments = vec![HIKARI.to_owned()];
    for driver in &DRIVERS {
        name.push('-');
        name.push_str(driver.version);
        let artifact = [driver.name, driver.group, driver.artifact, driver.version];
        arguments.extend(artifact.map(str::to_owned));
    }
    let source = Source {
        name: &name,
        title: "HikariCP and drivers of Java",
        script: include_str!("fetch-hikari.sh"),
        arguments: &arguments,
    };
    source.fetched()
}

/// Runs the program with each driver and each set of options, or without options.
pub(super) fn run(
    server: &Server,
    address: SocketAddr,
    work_dir: &Path,
    is_short: bool,
) -> Result<Cases> {
    let artifacts = drivers()?;
    server.sql(PREPARED)?;
    compile(&artifacts, work_dir)?;
    let mut cases = Cases::new();
    for driver in &DRIVERS {
        for (title, options) in &OPTIONS {
            if (is_short && !options.is_empty()) || driver.lacks.contains(title) {
                continue;
            }
            let name = format!("{} {title}", driver.name);
            let output = work_dir.join(format!("{}.log", name.replace(' ', "-")));
            let mut arguments = class_path(&artifacts, work_dir, Some(driver.name));
            arguments.push("Main".to_owned());
            arguments.push(format!("{}://{address}/hikari", driver.scheme));
            let options = driver.options.iter().chain(*options);
            arguments.extend(options.map(|option| (*option).to_owned()));
            let printed = step("java", arguments, work_dir, output)?;
            cases.extend(cases_of(&name, &printed));
        }
    }
    Ok(cases)
}

fn compile(artifacts: &Path, work_dir: &Path) -> Result<()> {
    let mut arguments = class_path(artifacts, work_dir, None);
    arguments.push("-d".to_owned());
    arguments.push(work_dir.join("classes").display().to_string());
    for (name, text) in SOURCES {
        let file = work_dir.join(name);
        fs::write(&file, text)?;
        arguments.push(file.display().to_string());
    }
    let log = work_dir.join("javac.log");
    step("javac", arguments, work_dir, log.clone())?;
    if !work_dir.join("classes/Main.class").is_file() {
        bail!("the program does not compile:\n{}", process::tail(&log));
    }
    Ok(())
}

fn class_path(artifacts: &Path, work_dir: &Path, driver: Option<&str>) -> Vec<String> {
    let jars = ["pool"].into_iter().chain(driver);
    let mut places = vec![work_dir.join("classes").display().to_string()];
    places.extend(jars.map(|name| artifacts.join(name).join("*").display().to_string()));
    vec!["-cp".to_owned(), places.join(":")]
}

fn step(name: &str, arguments: Vec<String>, work_dir: &Path, output: PathBuf) -> Result<String> {
    let ended = Step {
        program: &Program::here(tool::find(name)?),
        arguments,
        environment: vec![
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), work_dir.display().to_string()),
            // Environment that the drivers use is the same everywhere.
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
        ],
        user: None,
        directory: work_dir,
        output,
        limit: LIMIT,
        child_limit: LIMIT,
    }
    .run()?;
    Ok(ended.printed)
}

/// Returns the verdict of each check, with the value read or the failure. The name of the run has
/// the verdict on its completion.
pub(super) fn cases_of(run: &str, printed: &str) -> Cases {
    let mut cases = Cases::new();
    let mut end = Verdict::Missing;
    for line in printed.lines() {
        let mut columns = line.splitn(4, '\t');
        if line == "end" {
            end = Verdict::Passed;
        } else if columns.next() == Some("verdict") {
            let verdict = match columns.next() {
                Some("passed") => Verdict::Passed,
                _ => Verdict::Failed,
            };
            let name = format!("{run}: {}", columns.next().unwrap_or_default());
            let output = columns.next().unwrap_or_default().to_owned();
            cases.insert(name, Case { verdict, output });
        }
    }
    let output = String::new();
    let verdict = end;
    cases.insert(run.to_owned(), Case { verdict, output });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_its_verdict_and_a_run_that_stops_has_none() {
        let printed = "[main] INFO HikariPool-1 - Starting\n\
            verdict\tpassed\t@@sql_mode\tANSI_QUOTES\n\
            verdict\tfailed\ta pool of 30 fills\t20 of 30 connections\n";
        let cases = cases_of("mysql-9 as it comes", printed);
        let value = &cases["mysql-9 as it comes: @@sql_mode"];
        assert_eq!(value.verdict, Verdict::Passed);
        assert_eq!(value.output, "ANSI_QUOTES");
        let failed = &cases["mysql-9 as it comes: a pool of 30 fills"];
        assert_eq!(failed.verdict, Verdict::Failed);
        assert_eq!(failed.output, "20 of 30 connections");
        assert_eq!(cases["mysql-9 as it comes"].verdict, Verdict::Missing);
        let whole = cases_of("run", &format!("{printed}end\n"));
        assert_eq!(whole["run"].verdict, Verdict::Passed);
    }
}
