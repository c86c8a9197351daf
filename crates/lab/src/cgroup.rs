//! Limits a server's share of the processor and its memory by control groups, version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process;
use crate::scratch::Scratch;

/// Period over which the kernel enforces the share: a fifth of its default, so that a server at its
/// limit appears slow instead of stuck.
const PERIOD_US: u32 = 20_000;

/// Minimum quota that the kernel accepts: a millisecond.
const QUOTA_US_MIN: u32 = 1000;

/// The two interfaces for a limit.
#[derive(Debug, PartialEq)]
enum Controller {
    Version1(PathBuf),
    Version2(PathBuf),
}

/// Creates a group that may use `percent` of one processor; it is removed with the lab in
/// `work_dir`.
pub(crate) fn create(work_dir: &Path, server: &str, percent: u32) -> Result<PathBuf> {
    if !process::is_root() {
        bail!("a processor share needs control groups, and those need root: run the lab as root");
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let lab = work_dir.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{lab}-{server}");
    let quota_us = (PERIOD_US / 100 * percent).max(QUOTA_US_MIN);
    let period_us = quota_us * 100 / percent.max(1);
    match find(&mounts, "cpu", has)? {
        Controller::Version1(mount) => {
            let group = make(work_dir, &mount.join(name))?;
            write(&group.join("cpu.cfs_period_us"), &period_us.to_string())?;
            write(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())?;
            Ok(group)
        }
        Controller::Version2(mount) => {
            write(&mount.join("cgroup.subtree_control"), "+cpu")?;
            let group = make(work_dir, &mount.join(name))?;
            write(&group.join("cpu.max"), &format!("{quota_us} {period_us}"))?;
            Ok(group)
        }
    }
}

/// Creates a group whose processes share this amount of memory; it is removed with the lab.
pub(crate) fn create_memory(work_dir: &Path, server: &str, limit_mb: u32) -> Result<PathBuf> {
    if !process::is_root() {
        bail!("a memory limit needs control groups, and those need root: run the lab as root");
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let lab = work_dir.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{lab}-{server}");
    let bytes = (u64::from(limit_mb) << 20).to_string();
    match find(&mounts, "memory", has)? {
        Controller::Version1(mount) => {
            let group = make(work_dir, &mount.join(name))?;
            write(&group.join("memory.limit_in_bytes"), &bytes)?;
            Ok(group)
        }
        Controller::Version2(mount) => {
            write(&mount.join("cgroup.subtree_control"), "+memory")?;
            let group = make(work_dir, &mount.join(name))?;
            write(&group.join("memory.max"), &bytes)?;
            Ok(group)
        }
    }
}

fn make(work_dir: &Path, group: &Path) -> Result<PathBuf> {
    if !group.is_dir() {
        fs::create_dir(group).with_context(|| format!("cannot make {}", group.display()))?;
        Scratch::remove_group_at_end(work_dir, group)?;
    }
    Ok(group.to_owned())
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| {
        format!(
            "cannot write {value:?} to {}: this machine does not let control groups be set",
            file.display()
        )
    })
}

/// Finds the mounted hierarchy with this controller; a machine may have both versions.
fn find(
    mountinfo: &str,
    controller: &str,
    has: impl Fn(&Path, &str) -> bool,
) -> Result<Controller> {
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let Some(mount) = left.split(' ').nth(4).map(PathBuf::from) else {
            continue;
        };
        let right: Vec<&str> = right.split(' ').collect();
        match right.first() {
            Some(&"cgroup2") if has(&mount, controller) => return Ok(Controller::Version2(mount)),
            Some(&"cgroup")
                if right
                    .last()
                    .is_some_and(|options| options.split(',').any(|word| word == controller)) =>
            {
                return Ok(Controller::Version1(mount));
            }
            _ => {}
        }
    }
    bail!("no control group hierarchy with the {controller} controller is mounted")
}

fn has(mount: &Path, controller: &str) -> bool {
    let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    controllers
        .split_whitespace()
        .any(|word| word == controller)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 29 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        31 29 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        32 29 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";

    #[test]
    fn a_hybrid_machine_whose_cgroup2_has_no_cpu_controller_uses_version_1() {
        let found = find(HYBRID, "cpu", |_, _| false).expect("one hierarchy has cpu");
        assert_eq!(found, Controller::Version1("/sys/fs/cgroup/cpu".into()));
    }

    #[test]
    fn each_controller_is_found_in_its_own_hierarchy() {
        let line = "33 29 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let memory = format!("{HYBRID}{line}");
        let found = find(&memory, "memory", |_, _| false).expect("one hierarchy has memory");
        assert_eq!(found, Controller::Version1("/sys/fs/cgroup/memory".into()));
    }

    #[test]
    fn a_machine_with_cgroup2_uses_it() {
        let found = find(HYBRID, "cpu", |_, _| true).expect("one hierarchy has cpu");
        assert_eq!(found, Controller::Version2("/sys/fs/cgroup/unified".into()));
    }

    #[test]
    fn a_machine_without_the_controller_says_so() {
        let error = find(
            "31 29 0:27 / /x rw - cgroup cgroup rw,cpuset\n",
            "cpu",
            |_, _| false,
        )
        .unwrap_err();
        assert!(error.to_string().contains("cpu controller"));
    }
}
