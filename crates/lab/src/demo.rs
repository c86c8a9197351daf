//! Runs `evenkeel-lab demo`: databases behind Evenkeel under load, with a replica killed during it,
//! and the primary at the end.

mod change;
mod load;
mod progress;
mod result;
mod stage;

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use evenkeel_lab::{Balancer, Lab, Server, balancer};

use crate::control;
use crate::stop::Stop;
use load::{Load, Outcome};
use progress::Progress;
use result::DemoResult;
use stage::Act;

const READS: &str = "oltp_point_select";
const WRITES: &str = "oltp_update_index";

const DIRECT_READS_S: u32 = 4;
const WRITES_S: u32 = 3;
const READS_S: u32 = 13;
const KILL_AT_S: u32 = 5;
const START_AT_S: u32 = 8;
const TICK: Duration = Duration::from_millis(100);

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
    progress.event(
        "starting a MariaDB primary with two replicas and a PostgreSQL primary with \
         one",
    );
    let acts = stage::acts(&lab)?;
    stop.check()?;
    control::serve(&lab)?;
    let balancer = stage::balancer(&acts)?;
    progress.event("Evenkeel is running in front of them; sysbench tables loaded on every server");
    let demo = Demo {
        stop,
        progress,
        balancer,
    };
    let results = acts
        .iter()
        .map(|act| demo.play(act))
        .collect::<Result<Vec<DemoResult>>>()?;
    let last = acts.last().context("there are acts")?;
    let changed = change::play(&lab, last, &demo.balancer, &demo.progress)?;
    demo.progress.clear();
    results.iter().for_each(result::print);
    change::print(&changed);
    demo.stay(&lab)?;
    let is_clean = results.iter().all(DemoResult::no_newcomer_failed) && changed.is_sound();
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Demo {
    fn play(&self, act: &Act) -> Result<DemoResult> {
        let primary = act.servers[0].address;
        let direct_reads = self.load(act, READS, primary, DIRECT_READS_S)?;
        let newcomers = act.newcomers();
        let (reads, killed) = self.reads_with_a_death(act)?;
        let newcomers = newcomers.finish();
        Ok(DemoResult {
            title: act.title,
            direct_reads,
            reads,
            direct_writes: self.load(act, WRITES, primary, WRITES_S)?,
            writes: self.load(act, WRITES, act.writes.listen, WRITES_S)?,
            newcomers,
            killed,
            shares: stage::shares(&self.balancer.status()?, &act.reads.name),
            victim: act.victim()?.name.clone(),
        })
    }

    fn load(&self, act: &Act, script: &str, address: SocketAddr, seconds: u32) -> Result<Outcome> {
        let kind = if script == READS { "reads" } else { "writes" };
        let way = if address == act.servers[0].address {
            "direct to the primary"
        } else {
            "through Evenkeel"
        };
        let what = format!("{}: {kind} {way}", act.title);
        self.progress.event(&what);
        let mut load = Load::start(act.driver, address, script, seconds)?;
        self.follow(&mut load, &what, u32::MAX)?;
        Ok(load.outcome(seconds))
    }

    /// Runs the load during which a replica is killed; returns the time of the kill too.
    fn reads_with_a_death(&self, act: &Act) -> Result<(Outcome, Instant)> {
        let victim = act.victim()?;
        let what = format!("{}: reads through Evenkeel", act.title);
        self.progress
            .event(&format!("{what}, plus a new connection every 20 ms"));
        let mut load = Load::start(act.driver, act.reads.listen, READS, READS_S)?;
        self.follow(&mut load, &what, KILL_AT_S)?;
        victim.kill()?;
        let killed = Instant::now();
        self.progress.event(&format!("kill -9 {}", victim.name));
        self.follow(
            &mut load,
            &format!("{what}, {} is down", victim.name),
            START_AT_S,
        )?;
        self.progress.event(&format!("restarting {}", victim.name));
        let starting = start_beside(victim);
        self.follow(
            &mut load,
            &format!("{what}, {} is recovering", victim.name),
            u32::MAX,
        )?;
        starting.join().expect("starting a server does not panic")?;
        let state = stage::state_of(&self.balancer.status()?, &act.reads.name, &victim.name);
        self.progress.event(&format!(
            "{} is back; Evenkeel reports it as {state}",
            victim.name
        ));
        Ok((load.outcome(KILL_AT_S), killed))
    }

    /// Follows the load until it ends or reaches `until_s` seconds.
    fn follow(&self, load: &mut Load, what: &str, until_s: u32) -> Result<()> {
        while load.is_running() && load.elapsed().as_secs() < u64::from(until_s) {
            self.stop.check()?;
            sleep(TICK);
            load.step()?;
            self.progress
                .now(&format!("{what}  {:.0} queries/s", load.qps_now()));
        }
        Ok(())
    }

    fn stay(&self, lab: &Lab) -> Result<()> {
        let Some(port) = self.balancer.admin_port() else {
            return Ok(());
        };
        let page = format!("http://127.0.0.1:{port}/");
        if env::var("STAY").is_ok_and(|stay| stay == "1") {
            println!("\n{}", control::server_table(&lab.servers()));
            println!("In another terminal: evenkeel-lab list · kill|stop|start|freeze|thaw SERVER");
            println!("Status page: {page} (until Ctrl-C)");
            self.stop.wait();
        } else {
            println!("\nThe status page was at {page}; run `STAY=1 make demo` to keep it.");
        }
        Ok(())
    }
}

fn start_beside(server: &Server) -> JoinHandle<Result<()>> {
    let server = server.clone();
    spawn(move || server.start())
}
