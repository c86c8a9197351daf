//! Runs Keepalived beside a balancer: it holds a shared address by VRRP, and releases it after the
//! balancer's end.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::tool;

const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Options of one of the two peers that share an address.
#[derive(Clone)]
pub(crate) struct KeepalivedOptions {
    /// Network namespace.
    pub(crate) namespace: PathBuf,
    pub(crate) local: Ipv4Addr,
    pub(crate) peer: Ipv4Addr,
    pub(crate) shared: Ipv4Addr,
    /// True if it has priority for the address.
    pub(crate) is_active: bool,
    /// Time between two advertisements in ms, in steps of 10 ms; after three missing ones the peer
    /// takes over.
    pub(crate) advert_ms: u32,
}

/// A Keepalived that can be started, killed and restarted; killed on drop.
pub(crate) struct Keepalived {
    process: Process,
    config: String,
    scratch: Scratch,
}

impl Keepalived {
    /// Prepares the files in a separate directory, without starting the program.
    pub(crate) fn new(options: &KeepalivedOptions) -> Result<Keepalived> {
        let scratch = Scratch::new("keepalived")?;
        let dir = scratch.path().display().to_string();
        let config = configuration(options, &dir);
        fs::write(scratch.path().join("keepalived.conf"), &config)?;
        let check = format!("kill -0 \"$(cat {dir}/balancer.pid)\"\n");
        fs::write(scratch.path().join("alive.sh"), check)?;
        let words = format!(
            "--dont-fork --log-console --no-syslog --vrrp --use-file {dir}/keepalived.conf \
             --pid {dir}/keepalived.pid --vrrp_pid {dir}/vrrp.pid"
        );
        let process = Process::new(Launch {
            name: "keepalived".to_owned(),
            program: tool::find("keepalived")?,
            arguments: words.split(' ').map(str::to_owned).collect(),
            log: scratch.path().join("log"),
            note: scratch.note("keepalived"),
            stop_signal: libc::SIGTERM,
            namespace: Some(options.namespace.clone()),
            ..Launch::default()
        });
        Ok(Keepalived {
            process,
            config,
            scratch,
        })
    }

    pub(crate) fn config(&self) -> &str {
        &self.config
    }

    /// Sets the process without which it releases the address.
    pub(crate) fn depend_on(&self, balancer: u32) -> Result<()> {
        let file = self.scratch.path().join("balancer.pid");
        Ok(fs::write(file, balancer.to_string())?)
    }

    /// Starts it, possibly again; leftovers of a killed one do no harm.
    pub(crate) fn start(&self) -> Result<()> {
        for left in ["keepalived.pid", "vrrp.pid"] {
            let _ = fs::remove_file(self.scratch.path().join(left));
        }
        self.process.start()
    }

    /// Stops it cleanly: it hands the address over first.
    pub(crate) fn stop(&self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }

    /// Kills it: the address stays assigned.
    pub(crate) fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_running()
    }

    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// Returns the configuration, as in the manual page: the active peer's priority is higher by 50. A
/// script checks the balancer, because `track_process` matches names on the whole machine, and two
/// balancers have the same name.
fn configuration(options: &KeepalivedOptions, dir: &str) -> String {
    let KeepalivedOptions {
        local,
        peer,
        shared,
        ..
    } = options;
    let (state, priority) = match options.is_active {
        true => ("MASTER", 150),
        false => ("BACKUP", 100),
    };
    let router = shared.octets()[3];
    let advert_s = f64::from(options.advert_ms) / 1000.0;
    format!(
        "global_defs {{\n    router_id {local}\n    script_user root\n\
         \x20   enable_script_security\n}}\n\
         vrrp_script balancer_lives {{\n    script \"/bin/sh {dir}/alive.sh\"\n    interval 1\n}}\n\
         vrrp_instance shared_address {{\n    version 3\n    state {state}\n    priority {priority}\n\
         \x20   interface eth0\n    virtual_router_id {router}\n    advert_int {advert_s}\n\
         \x20   unicast_src_ip {local}\n    unicast_peer {{\n        {peer}\n    }}\n\
         \x20   virtual_ipaddress {{\n        {shared}/24\n    }}\n\
         \x20   track_script {{\n        balancer_lives\n    }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_one_has_the_higher_priority_and_both_the_same_router() {
        let options = KeepalivedOptions {
            namespace: PathBuf::new(),
            local: Ipv4Addr::new(10, 77, 1, 5),
            peer: Ipv4Addr::new(10, 77, 1, 6),
            shared: Ipv4Addr::new(10, 77, 1, 7),
            is_active: true,
            advert_ms: 100,
        };
        let active = configuration(&options, "/room");
        assert!(active.contains("priority 150") && active.contains("advert_int 0.1\n"));
        let options = KeepalivedOptions {
            is_active: false,
            advert_ms: 1000,
            ..options
        };
        let standby = configuration(&options, "/room");
        assert!(standby.contains("priority 100") && standby.contains("advert_int 1\n"));
        for config in [active, standby] {
            assert!(config.contains("virtual_router_id 7\n"), "{config}");
            assert!(config.contains("10.77.1.7/24"), "{config}");
        }
    }
}
