//! Checks the faults of an experiment for trials that are impossible.

use anyhow::{Result, bail};

use super::super::{Fault, How, Part, ServerKind, Victim};

/// Range of the advertisement interval in ms: VRRP 3 sends it in hundredths of a second, in 12
/// bits.
const ADVERT_MS: std::ops::RangeInclusive<u32> = 10..=40_950;

pub(super) fn check_fault(fault: &Fault, part: &Part) -> Result<()> {
    let is_balancer = fault.victim == Victim::Balancer;
    if is_balancer && part.servers.kind != ServerKind::Web {
        bail!("victim = \"balancer\" needs servers of kind = \"web\"");
    }
    match fault.how {
        How::Crash if !is_balancer => {
            bail!("how = \"crash\" is of victim = \"balancer\" only: choose stop, kill or nothing")
        }
        How::Nothing if is_balancer => {
            bail!("to a balancer something must be done: choose stop, kill or crash")
        }
        _ => {}
    }
    if !ADVERT_MS.contains(&fault.advert_ms) || !fault.advert_ms.is_multiple_of(10) {
        bail!("advert_ms must be a multiple of 10 from 10 to 40950");
    }
    let is_known = |name: &String| part.target.iter().any(|target| target.name == *name);
    if let Some(name) = fault.targets.iter().find(|name| !is_known(name)) {
        bail!("no target {name:?} in this part");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    const PART: &str = r#"
        name = "own"
        title = "My own"
        quick = { blocks = 1, seconds = 1 }
        normal = { blocks = 1, seconds = 1 }
        full = { blocks = 1, seconds = 1 }
        [[part]]
        name = "web"
        servers = { kind = "web", count = 2 }
        [[part.target]]
        name = "ours"
        program = "haproxy"
        [[part.load]]
        name = "pages"
        tool = "ab"
        sweep = "connections"
        points = { quick = [1], normal = [1], full = [1] }
        [[part.fault]]
        name = "it goes"
    "#;

    #[test]
    fn a_balancer_goes_in_front_of_web_servers_only_and_one_that_is_named_is_there() {
        let of = |words: &str| parse(&format!("{PART}{words}\n"));
        let right = "victim = \"balancer\"\nhow = \"crash\"\ntargets = [\"ours\"]";
        let fault = &of(right).expect("it is right").part[0].fault[0];
        assert_eq!(fault.advert_ms, 1000);
        for (words, why) in [
            ("victim = \"primary\"\nhow = \"crash\"", "is of victim"),
            ("victim = \"balancer\"\nhow = \"nothing\"", "must be done"),
            (
                "victim = \"balancer\"\nhow = \"kill\"\nadvert_ms = 15",
                "multiple of 10",
            ),
            (
                "victim = \"balancer\"\nhow = \"kill\"\ntargets = [\"theirs\"]",
                "no target \"theirs\"",
            ),
        ] {
            let error = format!("{:#}", of(words).expect_err("it is wrong"));
            assert!(error.contains(why), "{words}: {error}");
        }
        let galera = PART.replace("\"web\", count", "\"galera\", count");
        let galera = galera.replace("\"ab\"", "\"command\"\noptions = [\"ab\"]");
        let error = parse(&format!("{galera}{right}\n")).expect_err("it is wrong");
        assert!(format!("{error:#}").contains("kind = \"web\""), "{error:#}");
    }
}
