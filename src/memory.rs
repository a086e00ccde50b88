//! How much memory this process can have, and what it read from the disk, where the system tells (Linux).
//!
//! What the machine has is the least of it: a control group may leave less, and so may each group
//! above that. Both versions of control groups are read, because schedulers and containers use both.

/// Returns the bytes of memory that are free for this process, or are once the system gives back the
/// pages of files that it keeps; none where the system does not tell.
pub(crate) fn memory_available() -> Option<u64> {
    available(&|path| std::fs::read_to_string(path).ok())
}

/// Returns the number of bytes that this process has had read from the disk.
pub(crate) fn bytes_read() -> Option<u64> {
    number_after(&std::fs::read_to_string("/proc/self/io").ok()?, "read_bytes:")
}

/// The files of a version of control groups.
struct Version {
    /// Where the groups lie.
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// What the names of counters begin with that count the groups below, too.
    counters: &'static str,
}

const FIRST: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    counters: "total_",
};
const SECOND: Version =
    Version { root: "/sys/fs/cgroup", limit: "memory.max", used: "memory.current", counters: "" };

/// Returns the bytes that are available by the texts that `read` has for the system's files.
fn available(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let kilobytes = number_after(&read("/proc/meminfo")?, "MemAvailable:")?;
    let mut least = kilobytes.saturating_mul(1024);
    for line in read("/proc/self/cgroup").unwrap_or_default().lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let version = match controllers {
            "" => &SECOND,
            _ if controllers.split(',').any(|name| name == "memory") => &FIRST,
            _ => continue,
        };
        // In a container the path may be that of the host, where only its end is to be seen: a group
        // that is not there limits nothing, and the root stands for the container's own.
        let mut group = group.trim_end_matches('/');
        loop {
            if let Some(left) = version.left(group, read) {
                least = least.min(left);
            }
            match group.rfind('/') {
                Some(end) => group = &group[..end],
                None => break,
            }
        }
    }
    Some(least)
}

impl Version {
    /// Returns the bytes that a group leaves; none when it has no limit.
    fn left(&self, group: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
        let file = |name: &str| read(&format!("{}{group}/{name}", self.root));
        let number = |name| file(name)?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let used = number(self.used)?;
        let counters = file("memory.stat").unwrap_or_default();
        // Pages of files are given back when memory is needed.
        let of_files = ["active_file ", "inactive_file "]
            .iter()
            .filter_map(|name| number_after(&counters, &format!("{}{name}", self.counters)));
        Some(limit.saturating_sub(used.saturating_sub(of_files.sum())))
    }
}

/// Returns the number after `name` at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is available by some files of the system: pairs of path and text.
    fn available_by(files: &[(&str, &str)]) -> Option<u64> {
        available(&|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    const MEMINFO: (&str, &str) =
        ("/proc/meminfo", "MemTotal:  24655104 kB\nMemAvailable:   1000 kB\nMemFree: 7 kB\n");
    const UNLIMITED: &str = "9223372036854771712\n";

    #[test]
    fn without_groups_the_machine_alone_limits() {
        assert_eq!(available_by(&[MEMINFO]), Some(1_024_000));
        assert_eq!(available_by(&[]), None);
        assert_eq!(available_by(&[("/proc/meminfo", "MemFree: 7 kB\n")]), None);
        let text = "MemTotal: much\nMemAvailable: much\n";
        assert_eq!(available_by(&[("/proc/meminfo", text)]), None);
    }

    #[test]
    fn the_first_version_limits_by_each_group_above() {
        let group = ("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/jobs/17\n0::/\n");
        let files = [
            MEMINFO,
            group,
            ("/sys/fs/cgroup/memory/jobs/17/memory.limit_in_bytes", "500000\n"),
            ("/sys/fs/cgroup/memory/jobs/17/memory.usage_in_bytes", "300000\n"),
            (
                "/sys/fs/cgroup/memory/jobs/17/memory.stat",
                "active_file 1\ntotal_inactive_file 40000\ntotal_active_file 60000\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "900000\n"),
        ];
        // 300,000 bytes are used, 100,000 of them for files.
        assert_eq!(available_by(&files), Some(300_000));
        let mut above = files.to_vec();
        above.push(("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "450000\n"));
        above.push(("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "400000\n"));
        assert_eq!(available_by(&above), Some(50_000));
    }

    #[test]
    fn the_second_version_limits_unless_it_says_max() {
        let group = ("/proc/self/cgroup", "0::/user/job\n");
        let at = |limit| {
            available_by(&[
                MEMINFO,
                group,
                ("/sys/fs/cgroup/user/job/memory.max", limit),
                ("/sys/fs/cgroup/user/job/memory.current", "200000\n"),
                ("/sys/fs/cgroup/user/job/memory.stat", "inactive_file 0\nactive_file 150000\n"),
                ("/sys/fs/cgroup/user/memory.max", "max\n"),
                ("/sys/fs/cgroup/user/memory.current", "999000\n"),
            ])
        };
        assert_eq!(at("400000\n"), Some(350_000));
        assert_eq!(at("100000\n"), Some(50_000));
        assert_eq!(at("10000\n"), Some(0));
        assert_eq!(at("max\n"), Some(1_024_000));
    }

    #[test]
    fn in_a_container_the_root_is_its_own_group() {
        let files = [
            MEMINFO,
            ("/proc/self/cgroup", "4:memory:/docker/0123\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
        ];
        assert_eq!(available_by(&files), Some(200_000));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn some_memory_is_available() {
        assert!(memory_available().is_some_and(|bytes| bytes > 1 << 20));
        assert!(bytes_read().is_some());
    }
}
