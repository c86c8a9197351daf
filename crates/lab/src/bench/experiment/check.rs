//! Parses an experiment's file and rejects what could not run, before anything is started.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use super::super::outcome::{Check, Finding};
use super::{
    Balance, Depth, Experiment, Load, Mode, Part, Program, ServerKind, Speech, Sweep, Target, Tool,
};
use fault::check_fault;

mod fault;

/// MySQL's manual: "A group can consist of maximum 9 servers."
const GROUP_MAX: usize = 9;

/// Parses and checks an experiment.
pub(crate) fn parse(text: &str) -> Result<Experiment> {
    let experiment: Experiment = toml::from_str(text)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if experiment.name.is_empty() || !experiment.name.chars().all(is_name) {
        bail!(
            "name = {:?}: letters, digits, - and _ only",
            experiment.name
        );
    }
    for effort in [experiment.quick, experiment.normal, experiment.full] {
        if effort.blocks == 0 || effort.seconds == 0 {
            bail!("blocks and seconds of quick, normal and full must be at least 1");
        }
    }
    for part in &experiment.part {
        check_part(part).with_context(|| format!("part {:?}", part.name))?;
    }
    check_names(&experiment)?;
    Ok(experiment)
}

fn check_part(part: &Part) -> Result<()> {
    let servers = &part.servers;
    let count = servers.count + servers.address.len();
    if count == 0 {
        bail!("servers: count (or, for external ones, address) must name at least one");
    }
    if (servers.kind == ServerKind::External) != servers.count.eq(&0) {
        bail!("servers: kind = \"external\" takes address and no count, all others count");
    }
    if servers.kind == ServerKind::GroupReplication && servers.count > GROUP_MAX {
        bail!(
            "servers: count = {}: a MySQL group has at most {GROUP_MAX} members",
            servers.count
        );
    }
    if servers.program.is_some() && servers.kind != ServerKind::Web {
        bail!("servers: program is of kind = \"web\" only");
    }
    for load in &part.load {
        check_load(load, servers.speech()).with_context(|| format!("load {:?}", load.name))?;
    }
    for target in &part.target {
        check_target(target, count).with_context(|| format!("target {:?}", target.name))?;
        let mut wanted = target.loads.iter();
        if let Some(name) = wanted.find(|name| !part.load.iter().any(|load| load.name == **name)) {
            bail!("target {:?}: no load {name:?} in this part", target.name);
        }
    }
    for fault in &part.fault {
        check_fault(fault, part).with_context(|| format!("fault {:?}", fault.name))?;
    }
    Ok(())
}

fn check_load(load: &Load, speech: Speech) -> Result<()> {
    let fits = match load.tool {
        Tool::Sysbench => speech != Speech::Http,
        Tool::Pgbench => speech == Speech::Postgres,
        Tool::Ab | Tool::Wrk | Tool::Httperf => speech == Speech::Http,
        Tool::Command => true,
    };
    if !fits {
        bail!("{:?} does not speak to servers of this kind", load.tool);
    }
    if load.tool == Tool::Sysbench && load.script.is_empty() && load.sql.is_empty() {
        bail!("sysbench needs a script or sql");
    }
    if load.tool == Tool::Command && load.options.is_empty() {
        bail!("tool = \"command\" needs options: the words of the command");
    }
    if load.session_requests == Some(0) || load.client_addresses == Some(0) {
        bail!("session_requests and client_addresses must be at least 1");
    }
    if load.session_requests.is_some() && load.tool != Tool::Httperf {
        bail!("session_requests is of httperf only");
    }
    if load.client_addresses.is_some() && load.tool != Tool::Wrk {
        bail!("client_addresses is of wrk only");
    }
    if load.tool == Tool::Wrk && load.sweep == Sweep::Requests {
        bail!("wrk cannot run for a number of requests");
    }
    if matches!(load.tool, Tool::Ab | Tool::Wrk) && load.sweep == Sweep::Rate {
        bail!("{:?} cannot run at a rate", load.tool);
    }
    for depth in [Depth::Quick, Depth::Normal, Depth::Full] {
        let points = load.points(depth);
        if points.is_empty() || points.contains(&0) {
            bail!("points: {depth:?} needs at least one point, and none may be 0");
        }
    }
    Ok(())
}

fn check_target(target: &Target, servers: usize) -> Result<()> {
    if target
        .servers
        .is_some_and(|count| count == 0 || count > servers)
    {
        bail!("servers must be from 1 to {servers}");
    }
    if target.program == Program::Command && target.start.is_empty() {
        bail!("program = \"command\" needs start: the words of the command");
    }
    if target.program == Program::Glb && target.roles {
        bail!("roles: glb has one port and cannot distinguish writes from reads");
    }
    check_mode(target)?;
    check_balance(target)
}

/// Rejects a mode that the program does not have.
fn check_mode(target: &Target) -> Result<()> {
    let modes: &[Mode] = match target.program {
        Program::Evenkeel => &[Mode::Tcp, Mode::Http, Mode::Mysql, Mode::Postgres],
        Program::Haproxy | Program::Nginx => &[Mode::Tcp, Mode::Http],
        // These programs have one protocol, or the lab cannot configure them.
        _ => &[Mode::Tcp],
    };
    if !modes.contains(&target.mode) {
        bail!("this program has no such mode: leave it out, or choose one of {modes:?}");
    }
    if (target.sticky || target.forwarded) && target.mode != Mode::Http {
        bail!("sticky and forwarded need mode = \"http\"");
    }
    if target.sticky && target.program == Program::Nginx {
        bail!("sticky: nginx before 1.29.6 sets no such cookie");
    }
    Ok(())
}

/// Rejects an algorithm that the program does not have: it would be measured under a wrong name.
fn check_balance(target: &Target) -> Result<()> {
    use Balance::{First, LeastConnections, LeastLatency, RandomTwo, RoundRobin, Source};
    let Some(wanted) = target.balance else {
        return Ok(());
    };
    let known: &[Balance] = match target.program {
        Program::Evenkeel => &[
            RoundRobin,
            LeastConnections,
            Source,
            RandomTwo,
            LeastLatency,
            First,
        ],
        Program::Haproxy => &[RoundRobin, LeastConnections, Source, RandomTwo, First],
        Program::Nginx => &[RoundRobin, LeastConnections, Source, RandomTwo],
        Program::Glb => &[RoundRobin, LeastConnections, Source],
        _ => &[],
    };
    match known {
        [] => bail!("balance is not set for this program: leave it out"),
        known if !known.contains(&wanted) => {
            bail!("this program has no such balance: choose one of {known:?}")
        }
        _ => Ok(()),
    }
}

/// Checks that cells, figures and findings name targets and loads of the experiment.
fn check_names(experiment: &Experiment) -> Result<()> {
    let mut targets = BTreeSet::new();
    let mut loads = BTreeSet::new();
    for part in &experiment.part {
        for target in &part.target {
            if !targets.insert(target.name.as_str()) {
                bail!("two targets are called {:?}", target.name);
            }
        }
        for load in &part.load {
            if !loads.insert(load.name.as_str()) {
                bail!("two loads are called {:?}", load.name);
            }
        }
    }
    let known = |kind: &str, names: &BTreeSet<&str>, name: &str, of: &str| {
        // The open-loop companion of a load is also a load.
        if names.contains(name) || names.contains(name.trim_end_matches("-open")) {
            return Ok(());
        }
        bail!("{of}: no {kind} {name:?}")
    };
    for name in &experiment.references {
        known("target", &targets, name, "references")?;
    }
    for figure in &experiment.figure {
        let of = format!("figure {:?}", figure.title);
        for name in figure.targets.iter().chain(&figure.reference) {
            known("target", &targets, name, &of)?;
        }
        if let Some(name) = &figure.load {
            known("load", &loads, name, &of)?;
        }
    }
    for published in &experiment.published {
        known("target", &targets, &published.target, "published")?;
        known("load", &loads, &published.load, "published")?;
    }
    for finding in &experiment.finding {
        let of = format!("finding {:?}", finding.statement);
        let (of_targets, of_loads) = named(finding);
        for name in of_targets {
            known("target", &targets, name, &of)?;
        }
        for name in of_loads {
            known("load", &loads, name, &of)?;
        }
    }
    Ok(())
}

/// Returns the targets and loads that a finding names.
fn named(finding: &Finding) -> (Vec<&str>, Vec<&str>) {
    let (mut targets, mut loads) = (Vec::new(), Vec::new());
    for check in &finding.checks {
        match check {
            Check::Ratio {
                load, target, to, ..
            }
            | Check::Knee {
                load, target, to, ..
            } => {
                targets.extend([target.as_str(), to]);
                loads.push(load.as_str());
            }
            Check::Order {
                load, targets: all, ..
            } => {
                targets.extend(all.iter().map(String::as_str));
                loads.push(load);
            }
            Check::Peak { load, target, .. } | Check::Keeps { load, target, .. } => {
                targets.push(target);
                loads.push(load);
            }
            Check::Outage { target, .. } => targets.push(target),
        }
    }
    (targets, loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = r#"
        name = "own"
        title = "My own"
        quick = { blocks = 1, seconds = 1 }
        normal = { blocks = 1, seconds = 1 }
        full = { blocks = 1, seconds = 1 }
        [[part]]
        name = "web"
        servers = { kind = "web", count = 2 }
        [[part.target]]
        name = "direct"
        program = "direct"
        [[part.load]]
        name = "pages"
        tool = "ab"
        sweep = "connections"
        points = { quick = [1], normal = [1, 2], full = { from = 1, to = 7, step = 3 } }
    "#;

    fn parse_error(text: &str) -> String {
        format!("{:#}", parse(text).expect_err("it is wrong"))
    }

    #[test]
    fn the_smallest_experiment_is_taken_and_a_range_of_points_is_written_short() {
        let own = parse(SMALLEST).expect("it is right");
        assert_eq!(own.part[0].load[0].points(Depth::Full), [1, 4, 7]);
        assert_eq!(own.part[0].target[0].servers, None);
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line() {
        let error = parse_error(&SMALLEST.replace("tool =", "tol ="));
        assert!(
            error.contains("line 15") && error.contains("tol"),
            "{error}"
        );
    }

    #[test]
    fn a_tool_that_does_not_speak_to_the_servers_is_refused() {
        let error = parse_error(&SMALLEST.replace("\"ab\"", "\"pgbench\""));
        assert!(error.contains("does not speak"), "{error}");
    }

    #[test]
    fn only_web_servers_have_a_program() {
        let web = "kind = \"web\", program = \"apache\"";
        let text = SMALLEST.replace("kind = \"web\"", web);
        parse(&text).expect("it is right");
        let text = text.replace("\"web\", program", "\"galera\", program");
        assert!(parse_error(&text).contains("of kind = \"web\" only"));
    }

    #[test]
    fn a_finding_about_an_unknown_target_is_refused() {
        let text = format!(
            "{SMALLEST}\n[[finding]]\nstatement = \"faster\"\nchecks = [{{ check = \"ratio\", \
             load = \"pages\", target = \"haproxi\", to = \"direct\" }}]\n"
        );
        assert_eq!(
            parse_error(&text),
            "finding \"faster\": no target \"haproxi\""
        );
    }

    #[test]
    fn what_a_program_cannot_do_is_refused() {
        let target = |words: &str| SMALLEST.replace("program = \"direct\"", words);
        for (words, why) in [
            (
                "program = \"nginx\"\nbalance = \"least-latency\"",
                "no such balance",
            ),
            ("program = \"haproxy\"\nmode = \"mysql\"", "no such mode"),
            ("program = \"pgpool\"\nmode = \"http\"", "no such mode"),
            (
                "program = \"nginx\"\nmode = \"http\"\nsticky = true",
                "sticky: nginx",
            ),
            (
                "program = \"evenkeel\"\nforwarded = true",
                "need mode = \"http\"",
            ),
            (
                "program = \"pgpool\"\nbalance = \"source\"",
                "not set for this program",
            ),
            (
                "program = \"glb\"\nbalance = \"random-two\"",
                "no such balance",
            ),
            ("program = \"glb\"\nroles = true", "roles: glb has one port"),
        ] {
            let error = parse_error(&target(words));
            assert!(error.contains(why), "{words}: {error}");
        }
        let sessions = SMALLEST.replace("sweep =", "session_requests = 5\nsweep =");
        assert!(parse_error(&sessions).contains("of httperf only"));
        let first = "program = \"haproxy\"\nmode = \"http\"\nbalance = \"first\"";
        parse(&target(first)).expect("it is right");
    }

    #[test]
    fn a_mysql_group_has_nine_members_at_most() {
        let group = |count: usize| {
            let servers = format!("kind = \"group-replication\", count = {count}");
            let text = SMALLEST.replace("kind = \"web\", count = 2", &servers);
            text.replace("\"ab\"", "\"sysbench\"\nscript = \"oltp_read_only\"")
        };
        parse(&group(9)).expect("nine are a group");
        assert_eq!(
            parse_error(&group(10)),
            "part \"web\": servers: count = 10: a MySQL group has at most 9 members"
        );
    }

    #[test]
    fn two_targets_of_one_name_are_refused() {
        let twice = "[[part.target]]\nname = \"direct\"\nprogram = \"direct\"\n[[part.load]]";
        let error = parse_error(&SMALLEST.replace("[[part.load]]", twice));
        assert_eq!(error, "two targets are called \"direct\"");
    }
}
