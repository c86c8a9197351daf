//! Reads process data from /proc: descendants, processor time, memory.

use std::fs;

/// Returns the process and all its living descendants, parents before children.
pub fn tree(root: u32) -> Vec<u32> {
    let parents = parents();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            parents
                .iter()
                .filter(|(_, of)| *of == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found
}

/// Returns the processor time of these processes, in microseconds, including all threads and reaped
/// children.
pub fn cpu_us(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|pid| ticks(*pid)).sum::<u64>() * us_per_tick()
}

/// Returns the anonymous (private, not file-backed) memory of these processes in kB.
pub fn memory_kb(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|pid| anonymous_kb(*pid)).sum()
}

/// Returns whether the process exists and has not ended. A zombie has ended, unless further threads
/// still run: they hold its files and ports.
pub fn is_alive(pid: u32) -> bool {
    let has_threads = || fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|t| t.count() > 1);
    stat(pid).is_some_and(|fields| match fields[0].as_str() {
        "Z" => has_threads(),
        state => state != "X",
    })
}

/// Returns whether the process is stopped by SIGSTOP.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] == "T")
}

/// Describes a process and its current wait, to explain why it does not end.
pub fn described(pid: u32) -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = read("cmdline").replace('\0', " ");
    let state = stat(pid).map_or_else(|| "gone".to_owned(), |fields| fields[0].clone());
    format!("{pid} ({}) {state} in {}", line.trim(), read("wchan"))
}

fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.get(1)?.parse().ok()?)))
        .collect()
}

/// Returns the fields of /proc/PID/stat after the command name, which may itself contain spaces and
/// parentheses.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<String> = fields.split_whitespace().map(str::to_owned).collect();
    (fields.len() > 14).then_some(fields)
}

fn ticks(pid: u32) -> Option<u64> {
    let fields = stat(pid)?;
    fields[11..15]
        .iter()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

fn anonymous_kb(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find(|line| line.starts_with("Anonymous:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn us_per_tick() -> u64 {
    #[expect(unsafe_code, reason = "sysconf has no wrapper in the standard library")]
    // SAFETY: sysconf takes no pointer and has no precondition.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000 / u64::try_from(per_second).unwrap_or(100).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_process_starts_with_itself_and_holds_its_child() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .expect("sleep");
        let tree = tree(std::process::id());
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert_eq!(tree[0], std::process::id());
        assert!(tree.contains(&child.id()));
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn this_process_uses_processor_time_and_anonymous_memory() {
        let own = [std::process::id()];
        let limit = std::time::Duration::from_secs(10);
        crate::eventually(limit, "processor time", || {
            Ok((cpu_us(&own) > 0).then_some(()))
        })
        .expect("busy polling takes processor time");
        assert!(memory_kb(&own) > 10);
    }
}
