//! Creates a made-up outcome, clearly synthetic, with everything that a report can show.

use std::collections::BTreeMap;

use crate::bench::outcome::{
    Cell, Check, ConfigFile, Drawing, Experiment, FORMAT, Failure, FaultStep, FaultTrial, Figure,
    Finding, Load, Loop, Machine, Metric, Outcome, ServerShare, Study, Target, Vitals,
};

/// Returns two experiments like the published ones, with invented numbers; another `weather` gives
/// another run.
pub(crate) fn outcome(weather: u64) -> Outcome {
    Outcome {
        format: FORMAT,
        program: "evenkeel-lab 0.0.0 (SYNTHETIC SAMPLE)".to_owned(),
        command: "evenkeel-lab bench all --quick --seed 7".to_owned(),
        started_unix_s: 1_795_219_631,
        ended_unix_s: Some(1_795_221_551),
        scale: "quick".to_owned(),
        seed: 7,
        machine: machine(),
        versions: [
            ("sysbench", "1.0.20"),
            ("HAProxy", "3.2.4"),
            ("MySQL Router", "9.7.0"),
        ]
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .into(),
        notes: vec![
            "SYNTHETIC SAMPLE: these numbers were invented to try the report.".to_owned(),
            "No right to make control groups: servers share the cores without limits.".to_owned(),
        ],
        experiments: vec![router(weather), two_databases(weather)],
    }
}

fn machine() -> Machine {
    Machine {
        processor: "Synthetic 2000".to_owned(),
        cores: 2,
        memory_mb: 15_990,
        kernel: "6.18.0".to_owned(),
        system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        virtualization: "kvm".to_owned(),
        load_average: 0.12,
        local_ports: (32_768, 60_999),
        further: [("Open files".to_owned(), "1048576".to_owned())].into(),
        ..Machine::default()
    }
}

fn router(weather: u64) -> Experiment {
    let loads = vec![load(
        "flights",
        "Flight records, read",
        "queries",
        Loop::Closed,
    )];
    let mut experiment = Experiment {
        name: "router-against-haproxy".to_owned(),
        title: "MySQL Router against HAProxy on InnoDB Cluster".to_owned(),
        study: Some(Study {
            year: 2024,
            asked: "whether MySQL Router or HAProxy is faster".to_owned(),
            setting: "MySQL 8.0.26, CentOS 8, three database nodes, one balancer each.".to_owned(),
            found: "Router 2,921 to 2,612 transactions a second, HAProxy 905 to 801; the role \
                moves within 2 s."
                .to_owned(),
            differs: "MySQL 8.4, everything on one machine, evenkeel in tcp mode.".to_owned(),
        }),
        topology: "Three MySQL 8.4 servers in Group Replication, single primary.".to_owned(),
        targets: router_targets(),
        loads,
        references: vec!["direct".to_owned(), "mysql-router".to_owned()],
        blocks_wanted: 5,
        findings: router_findings(),
        figures: vec![
            figure(
                "Throughput over threads",
                Drawing::Lines,
                Metric::Rate,
                Some("flights"),
            ),
            figure(
                "Latency over threads",
                Drawing::Lines,
                Metric::P95Ms,
                Some("flights"),
            ),
            figure(
                "In per cent of direct",
                Drawing::Percent,
                Metric::Rate,
                Some("flights"),
            ),
            figure("Summary", Drawing::Bars, Metric::Rate, Some("flights")),
        ],
        failures: vec![Failure {
            at: "nginx stream, 128 threads, block 4".to_owned(),
            why: "sysbench gave up: connection refused (<a \"made-up\" failure> & its signs)"
                .to_owned(),
        }],
        ..Experiment::default()
    };
    let mut rng = SampleRng(weather);
    experiment.cells = router_cells(&experiment.targets, &mut rng);
    let outages_ms = [
        ("evenkeel", 640.0),
        ("mysql-router", 2_300.0),
        ("haproxy", 4_100.0),
    ];
    for (target, base_ms) in outages_ms {
        experiment.faults.extend(trials(target, base_ms, &mut rng));
    }
    experiment
}

fn router_targets() -> Vec<Target> {
    vec![
        target("direct", "one server direct", "", 1),
        target("evenkeel", "Evenkeel", "evenkeel", 3),
        target(
            "evenkeel-least",
            "Evenkeel, least connections",
            "evenkeel",
            3,
        ),
        target("haproxy", "HAProxy", "haproxy", 3),
        target("mysql-router", "MySQL Router", "mysql-router", 3),
        target("nginx", "nginx stream", "nginx", 3),
        Target {
            missing: Some("not installed".to_owned()),
            ..target("proxysql", "ProxySQL", "proxysql", 3)
        },
    ]
}

fn router_cells(targets: &[Target], rng: &mut SampleRng) -> Vec<Cell> {
    let factors = [1.0, 0.78, 0.77, 0.66, 0.42, 0.64];
    let mut cells = Vec::new();
    for block in 1..=5 {
        let slow = rng.around(1.0, 0.08);
        for (turn, (target, factor)) in targets.iter().zip(factors).enumerate() {
            for threads in [8.0, 16.0, 32.0, 64.0, 80.0, 96.0, 112.0, 128.0] {
                let knee = 1.0 - (threads / 128.0) * 0.18;
                let rate = 24_000.0 * factor * knee * slow * rng.around(1.0, 0.03);
                let mut cell = cell(target, "flights", threads, block, turn as u32 + 1, rate);
                let spread = [31.0, 36.0, 33.0].map(|share| rng.around(share, 0.05) as u64);
                let servers = &spread[..target.servers.min(3) as usize];
                cell.shares = shares(servers);
                if target.name == "nginx" && block == 4 && threads > 120.0 {
                    cell.failure = Some("sysbench gave up: connection refused".to_owned());
                }
                cells.push(cell);
            }
        }
    }
    cells
}

fn router_findings() -> Vec<Finding> {
    let ratio = |target: &str, to: &str, at_least, at_most| Check::Ratio {
        load: "flights".to_owned(),
        metric: Metric::Rate,
        target: target.to_owned(),
        to: to.to_owned(),
        points: None,
        at_least,
        at_most,
    };
    let finding = |statement: &str, published: &str, check| Finding {
        statement: statement.to_owned(),
        published: published.to_owned(),
        checks: vec![check],
    };
    vec![
        finding(
            "MySQL Router is about three times as fast as HAProxy",
            "2,921 against 905 tps at 8 threads",
            ratio("mysql-router", "haproxy", Some(2.0), None),
        ),
        finding(
            "The role moves within 2 s",
            "within 2 s, both ways",
            Check::Outage {
                target: "mysql-router".to_owned(),
                scenario: "primary stopped".to_owned(),
                at_most_ms: 2_000.0,
            },
        ),
        finding(
            "Throughput has its best at 8 to 32 threads",
            "2,982 tps at 32 threads",
            Check::Peak {
                load: "flights".to_owned(),
                metric: Metric::Rate,
                target: "mysql-router".to_owned(),
                from: 8.0,
                until: 32.0,
            },
        ),
        finding(
            "ProxySQL is no slower than HAProxy",
            "",
            ratio("proxysql", "haproxy", Some(1.0), None),
        ),
    ]
}

fn two_databases(weather: u64) -> Experiment {
    let mut experiment = Experiment {
        name: "two-databases".to_owned(),
        title: "Two databases behind a balancer".to_owned(),
        topology: "A primary and a replica, each held to 50 % of a core.".to_owned(),
        targets: database_targets(),
        loads: database_loads(),
        references: vec!["mysql-direct".to_owned(), "postgres-direct".to_owned()],
        blocks_wanted: 5,
        figures: vec![
            figure(
                "Simple read",
                Drawing::Lines,
                Metric::Rate,
                Some("simple-read"),
            ),
            figure(
                "In per cent",
                Drawing::Percent,
                Metric::Rate,
                Some("simple-read"),
            ),
            figure(
                "Average of 20 to 65 threads",
                Drawing::Bars,
                Metric::Rate,
                None,
            ),
            figure(
                "PostgreSQL",
                Drawing::Lines,
                Metric::Rate,
                Some("postgres-read"),
            ),
        ],
        findings: vec![Finding {
            statement: "Two servers read nearly twice as fast as one".to_owned(),
            published: "18,643 to 34,994 tps (+87.7 %)".to_owned(),
            checks: vec![Check::Ratio {
                load: "simple-read".to_owned(),
                metric: Metric::Rate,
                target: "mysql-two".to_owned(),
                to: "mysql-direct".to_owned(),
                points: Some((20.0, 65.0)),
                at_least: Some(1.5),
                at_most: None,
            }],
        }],
        ..Experiment::default()
    };
    experiment.cells = database_cells(&experiment.targets, weather + 1);
    experiment
}

fn database_targets() -> Vec<Target> {
    vec![
        target("mysql-direct", "MySQL direct", "", 1),
        target("mysql-one", "HAProxy, one server", "haproxy", 1),
        target("mysql-two", "HAProxy, two servers", "haproxy", 2),
        target("evenkeel-two", "Evenkeel, two servers", "evenkeel", 2),
        target("postgres-direct", "PostgreSQL direct", "", 1),
        target("pgpool-two", "Pgpool-II, two servers", "pgpool", 2),
    ]
}

fn database_loads() -> Vec<Load> {
    vec![
        load(
            "simple-read",
            "MySQL simple read: one point select",
            "transactions",
            Loop::Closed,
        ),
        load(
            "write",
            "MySQL write: one update",
            "transactions",
            Loop::Closed,
        ),
        load(
            "postgres-read",
            "PostgreSQL simple read",
            "transactions",
            Loop::Open,
        ),
    ]
}

fn database_cells(targets: &[Target], weather: u64) -> Vec<Cell> {
    let courses = [
        ("mysql-direct", "simple-read", 18_000.0),
        ("mysql-one", "simple-read", 15_500.0),
        ("mysql-two", "simple-read", 33_500.0),
        ("evenkeel-two", "simple-read", 34_600.0),
        ("mysql-direct", "write", 3_900.0),
        ("mysql-two", "write", 3_860.0),
        ("evenkeel-two", "write", 3_880.0),
        ("postgres-direct", "postgres-read", 21_700.0),
        ("pgpool-two", "postgres-read", 10_900.0),
    ];
    let mut cells = Vec::new();
    let mut rng = SampleRng(weather);
    for block in 1..=5 {
        let slow = rng.around(1.0, 0.05);
        for (turn, (name, load, most)) in courses.iter().enumerate() {
            let target = targets.iter().find(|t| t.name == *name).expect("is there");
            for threads in (1..=65).step_by(4) {
                let threads = f64::from(threads);
                let rise = 1.0 - (-threads / 6.0).exp();
                let rate = most * rise * slow * rng.around(1.0, 0.02);
                let turn = turn as u32 + 1;
                cells.push(cell(target, load, threads, block, turn, rate));
            }
        }
    }
    cells
}

fn target(name: &str, title: &str, program: &str, servers: u32) -> Target {
    Target {
        name: name.to_owned(),
        title: title.to_owned(),
        program: program.to_owned(),
        servers,
        configs: vec![ConfigFile {
            name: format!("{name}.conf"),
            text: format!("# invented\nlisten <{name}>\n    balance roundrobin\n"),
        }],
        ..Target::default()
    }
}

fn load(name: &str, title: &str, counted: &str, kind: Loop) -> Load {
    Load {
        name: name.to_owned(),
        title: title.to_owned(),
        tool: "sysbench".to_owned(),
        command: format!("sysbench --threads=8 --time=5 {name} run"),
        kind,
        counted: counted.to_owned(),
        axis: "threads".to_owned(),
        seconds: 5.0,
    }
}

fn figure(title: &str, drawing: Drawing, metric: Metric, load: Option<&str>) -> Figure {
    Figure {
        title: title.to_owned(),
        caption: "Invented numbers.".to_owned(),
        drawing,
        load: load.map(str::to_owned),
        metric,
        targets: Vec::new(),
        reference: None,
        points: None,
        scenario: None,
    }
}

fn cell(target: &Target, load: &str, threads: f64, block: u32, turn: u32, rate: f64) -> Cell {
    let mean_ms = 1_000.0 * threads / rate;
    let balancer_us = match target.program.as_str() {
        "" => 0.0,
        "evenkeel" => 17.0,
        "mysql-router" => 46.0,
        _ => 27.0,
    };
    let values = BTreeMap::from([
        (Metric::Rate, rate),
        (Metric::MeanMs, mean_ms),
        (Metric::P95Ms, mean_ms * 1.9),
        (Metric::P99Ms, mean_ms * 3.1),
        (Metric::ErrorPercent, 0.0),
        (Metric::BalancerCpuUs, balancer_us),
        (Metric::ServersCpuUs, 38.0),
        (Metric::LoadCpuUs, 14.0),
    ]);
    Cell {
        target: target.name.clone(),
        load: load.to_owned(),
        point: threads,
        block,
        turn,
        seconds: 5.0,
        values,
        vitals: Vitals {
            load_busy_percent: if threads > 100.0 { 93.0 } else { 41.0 },
            machine_busy_percent: 96.0,
            steal_percent: 0.3,
            local_ports_used: 300,
            offered_percent: None,
        },
        ..Cell::default()
    }
}

fn shares(requests: &[u64]) -> Vec<ServerShare> {
    let named = requests.iter().zip(1..);
    named
        .map(|(requests, number)| ServerShare {
            server: format!("mysql-{number}"),
            requests: *requests,
        })
        .collect()
}

fn trials(target: &str, base_ms: f64, rng: &mut SampleRng) -> Vec<FaultTrial> {
    let parts = [
        ("detect", 0.45),
        ("decide", 0.1),
        ("promote", 0.25),
        ("route", 0.2),
    ];
    let trial = |trial| {
        let error_ms = rng.around(8.0, 0.5);
        let length_ms = rng.around(base_ms, 0.35);
        let mut from_ms = error_ms;
        let steps = parts.map(|(name, part)| {
            let step = FaultStep {
                name: name.to_owned(),
                from_ms,
                to_ms: from_ms + part * length_ms,
            };
            from_ms = step.to_ms;
            step
        });
        FaultTrial {
            target: target.to_owned(),
            scenario: "primary stopped".to_owned(),
            trial,
            probe_ms: 10.0,
            first_error_ms: Some(error_ms),
            first_success_ms: Some(error_ms + length_ms),
            steps: steps.into(),
            acknowledged: 900,
            failed: (length_ms / 10.0) as u64,
            ..FaultTrial::default()
        }
    };
    (1..=20).map(trial).collect()
}

/// Pseudo-random numbers.
struct SampleRng(u64);

impl SampleRng {
    /// Returns a number around `value`, off by at most this fraction of it.
    fn around(&mut self, value: f64, part: f64) -> f64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        let unit = (self.0 >> 40) as f64 / f64::from(1 << 24);
        value * (1.0 + part * (2.0 * unit - 1.0))
    }
}
