//! `evenkeel-lab demo`: databases, Evenkeel in front, load, and a replica killed in the middle.

mod load;
mod progress;
mod stage;

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_lab::{Balancer, Lab, NewcomersReport, balancer};

use crate::stop::Stop;
use crate::{control, row, table};
use load::{Load, Outcome};
use progress::Progress;
use stage::Act;

const DIRECT_S: u32 = 4;
const WRITES_S: u32 = 3;
const READS_S: u32 = 13;
const KILL_AT_S: u64 = 5;
const START_AT_S: u64 = 8;
const TICK: Duration = Duration::from_millis(100);

/// What one database's act came to.
struct Played {
    title: &'static str,
    direct_reads: Outcome,
    reads: Outcome,
    direct_writes: Outcome,
    writes: Outcome,
    newcomers: NewcomersReport,
    shares: Vec<(String, u64)>,
    victim: String,
}

struct Demo {
    stop: Stop,
    progress: Progress,
    balancer: Balancer,
}

pub(crate) fn run() -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    balancer::find_binary().context("`make demo` builds and runs it")?;
    let progress = Progress::new();
    let lab = Arc::new(Lab::new("demo")?);
    progress.event("starting a MariaDB primary with two replicas, a PostgreSQL primary with one");
    let acts = stage::acts(&lab)?;
    stop.check()?;
    control::serve(&lab)?;
    let balancer = stage::balancer(&acts)?;
    progress.event("Evenkeel stands in front of them; every server holds sysbench's tables");
    let demo = Demo {
        stop,
        progress,
        balancer,
    };
    let results = acts
        .iter()
        .map(|act| demo.play(act))
        .collect::<Result<Vec<_>>>()?;
    demo.progress.clear();
    results.iter().for_each(print_result);
    demo.stay(&lab)?;
    let failed = results
        .iter()
        .map(|result| result.newcomers.failures.len() + result.reads.refused.len());
    Ok(if failed.sum::<usize>() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Demo {
    fn play(&self, act: &Act) -> Result<Played> {
        let primary = act.servers[0].address;
        let direct_reads =
            self.load(act, "reads, direct", primary, "oltp_point_select", DIRECT_S)?;
        let newcomers = act.newcomers();
        let reads = self.reads_with_a_death(act)?;
        let newcomers = newcomers.finish();
        let direct_writes = self.load(
            act,
            "writes, direct",
            primary,
            "oltp_update_index",
            WRITES_S,
        )?;
        let address = act.writes.listen;
        let writes = self.load(
            act,
            "writes, Evenkeel",
            address,
            "oltp_update_index",
            WRITES_S,
        )?;
        let shares = stage::shares(&self.balancer.status()?, &act.reads.name);
        let victim = act.victim()?.name.clone();
        Ok(Played {
            title: act.title,
            direct_reads,
            reads,
            direct_writes,
            writes,
            newcomers,
            shares,
            victim,
        })
    }

    fn load(
        &self,
        act: &Act,
        what: &str,
        address: SocketAddr,
        script: &str,
        seconds: u32,
    ) -> Result<Outcome> {
        self.progress.event(&format!("{}: {what}", act.title));
        let mut load = Load::start(act.driver, address, script, seconds)?;
        while load.is_running() {
            self.tick(act, &mut load, what)?;
        }
        Ok(load.outcome(seconds as usize))
    }

    fn reads_with_a_death(&self, act: &Act) -> Result<Outcome> {
        let victim = act.victim()?.clone();
        self.progress.event(&format!(
            "{}: reads, Evenkeel; a new connection every 20 ms beside them",
            act.title
        ));
        let mut load = Load::start(act.driver, act.reads.listen, "oltp_point_select", READS_S)?;
        let mut restart = None;
        let mut killed = false;
        while load.is_running() {
            let state = if killed {
                self.state(act, &victim.name)?
            } else {
                String::new()
            };
            self.tick(act, &mut load, &format!("reads, Evenkeel  {state}"))?;
            if !killed && load.elapsed().as_secs() >= KILL_AT_S {
                victim.kill()?;
                killed = true;
                self.progress.event(&format!("kill -9 {}", victim.name));
            }
            if restart.is_none() && load.elapsed().as_secs() >= START_AT_S {
                self.progress
                    .event(&format!("starting {} again", victim.name));
                let victim = victim.clone();
                restart = Some(thread::spawn(move || victim.start()));
            }
        }
        if let Some(restart) = restart {
            restart.join().expect("starting a server does not panic")?;
        }
        let state = stage::state_of(&self.balancer.status()?, &act.reads.name, &victim.name);
        self.progress.event(&format!(
            "{} runs again; Evenkeel sees it {state}",
            victim.name
        ));
        Ok(load.outcome(KILL_AT_S as usize))
    }

    fn tick(&self, act: &Act, load: &mut Load, what: &str) -> Result<()> {
        self.stop.check()?;
        sleep(TICK);
        load.step()?;
        self.progress.now(&format!(
            "{}: {what}  {:.0} queries/s",
            act.title,
            load.qps_now()
        ));
        Ok(())
    }

    fn state(&self, act: &Act, server: &str) -> Result<String> {
        let status = self.balancer.status()?;
        Ok(format!(
            "{server} is {}",
            stage::state_of(&status, &act.reads.name, server)
        ))
    }

    fn stay(&self, lab: &Lab) -> Result<()> {
        let Some(port) = self.balancer.admin_port() else {
            return Ok(());
        };
        if env::var("STAY").is_ok_and(|stay| stay == "1") {
            println!("Status page: http://127.0.0.1:{port}/   (until Ctrl-C)\n");
            println!("{}", control::server_table(&lab.servers()));
            println!("Another terminal: evenkeel-lab list · kill|stop|start|freeze|thaw SERVER");
            self.stop.wait();
        } else {
            println!(
                "Status page: http://127.0.0.1:{port}/ while it runs; STAY=1 make demo keeps it up."
            );
        }
        Ok(())
    }
}

fn print_result(result: &Played) {
    let mut rows = vec![row![result.title, "direct", "Evenkeel", "ratio"]];
    let pairs = [
        ("reads", &result.direct_reads, &result.reads),
        ("writes", &result.direct_writes, &result.writes),
    ];
    for (what, direct, through) in pairs {
        let ratio = through.qps / direct.qps.max(1.0);
        rows.push(row![
            format!("{what}, queries/s"),
            format!("{:.0}", direct.qps),
            format!("{:.0}", through.qps),
            format!("{ratio:.2}")
        ]);
        let (before, after) = (direct.p95_ms, through.p95_ms);
        rows.push(row![
            format!("{what}, p95 ms"),
            format!("{before:.2}"),
            format!("{after:.2}")
        ]);
    }
    println!("\n{}", table::columns(&rows));
    println!("connections for reads: {}", shares_sentence(&result.shares));
    println!(
        "new connections while {} was dead and after: {}",
        result.victim,
        stage::newcomers_sentence(&result.newcomers)
    );
    for why in result.reads.refused.iter().take(3) {
        println!("a client of the load could not connect: {why}");
    }
    println!(
        "sessions open on {} when it was killed, lost with it (nothing in front can save those): {}",
        result.victim, result.reads.broken
    );
}

fn shares_sentence(shares: &[(String, u64)]) -> String {
    let total = shares.iter().map(|(_, count)| count).sum::<u64>().max(1);
    let parts: Vec<String> = shares
        .iter()
        .map(|(name, count)| format!("{name} {count} ({} %)", count * 100 / total))
        .collect();
    parts.join(", ")
}
