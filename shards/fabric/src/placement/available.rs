//! Which CPUs this process may use, and for how much time.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::CpuList;

/// What the process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// The CPUs that it may run on.
    pub cpus: CpuList,
    /// How many CPUs' time its control groups allow, in whole CPUs and at least one; none when there is no limit.
    pub quota: Option<usize>,
}

impl Available {
    /// What the calling thread may use: its affinity, which the kernel keeps within the control group's cpuset, and the
    /// tightest CPU quota of its control group and those above it, version 2 or 1.
    ///
    /// # Errors
    ///
    /// Of `sched_getaffinity`. A control group that can't be read counts as no limit.
    pub fn of_this_thread() -> io::Result<Self> {
        let affinity = rustix::thread::sched_getaffinity(None)?;
        let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| affinity.is_set(cpu));
        let cpus = CpuList::from_cpus(cpus).ok_or_else(|| io::Error::other("the process may run on no CPU"))?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Ok(Self { cpus, quota: quota(&groups, Path::new("/sys/fs/cgroup")) })
    }

    /// How many executors can run at a time.
    #[must_use]
    pub fn parallelism(&self) -> usize {
        self.quota.map_or(self.cpus.len(), |quota| quota.min(self.cpus.len()))
    }
}

/// The tightest quota in whole CPUs. `groups` is what `/proc/self/cgroup` holds; `root` is where control groups are
/// mounted.
fn quota(groups: &str, root: &Path) -> Option<usize> {
    let quotas = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        match controllers {
            "" => tightest(root, path, quota_v2),
            _ if controllers.split(',').any(|controller| controller == "cpu") => {
                // Mounted under the joint name, with a link per controller.
                tightest(&root.join("cpu"), path, quota_v1)
            }
            _ => None,
        }
    });
    quotas.min()
}

/// The tightest quota of the group at `path` below `mount` and of those above it.
fn tightest(mount: &Path, path: &str, read: impl Fn(&Path) -> Option<usize>) -> Option<usize> {
    let group: PathBuf = mount.join(path);
    group.ancestors().take_while(|above| above.starts_with(mount)).filter_map(read).min()
}

/// `cpu.max` holds a quota, or `max`, and a period, both in microseconds.
fn quota_v2(group: &Path) -> Option<usize> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota_us, period_us) = text.trim().split_once(' ')?;
    whole_cpus(quota_us.parse().ok()?, period_us.parse().ok()?)
}

/// Version 1 holds the quota, or -1, and the period in two files.
fn quota_v1(group: &Path) -> Option<usize> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    whole_cpus(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
}

/// Rounded down, so that as many busy executors are not throttled; at least one.
fn whole_cpus(quota_us: u64, period_us: u64) -> Option<usize> {
    let cpus = quota_us.checked_div(period_us)?.max(1);
    Some(usize::try_from(cpus).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own for a test, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("queen-fabric-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, file: &str, text: &str) {
            let file = self.0.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            // A leftover in the temporary directory fails no test.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn this_thread_may_run_somewhere() {
        let available = Available::of_this_thread().unwrap();
        assert!(available.parallelism() >= 1);
        assert!(available.parallelism() <= available.cpus.len());
    }

    #[test]
    fn the_tightest_group_above_counts() {
        let tree = Tree::new("v2");
        tree.write("cpu.max", "max 100000\n");
        tree.write("pod/cpu.max", "250000 100000\n");
        tree.write("pod/app/cpu.max", "800000 100000\n");
        assert_eq!(quota("0::/pod/app\n", &tree.0), Some(2));
        assert_eq!(quota("0::/\n", &tree.0), None);
        assert_eq!(quota("0::/elsewhere\n", &tree.0), None);
    }

    #[test]
    fn less_than_one_cpu_counts_as_one() {
        let tree = Tree::new("small");
        tree.write("cpu.max", "50000 100000\n");
        assert_eq!(quota("0::/\n", &tree.0), Some(1));
    }

    #[test]
    fn version_1_has_a_quota_and_a_period() {
        let tree = Tree::new("v1");
        tree.write("cpu/job/cpu.cfs_quota_us", "300000\n");
        tree.write("cpu/job/cpu.cfs_period_us", "100000\n");
        tree.write("cpu/free/cpu.cfs_quota_us", "-1\n");
        tree.write("cpu/free/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota("5:memory:/job\n4:cpu,cpuacct:/job\n", &tree.0), Some(3));
        assert_eq!(quota("4:cpu,cpuacct:/free\n", &tree.0), None);
        assert_eq!(quota("4:cpuset:/job\n", &tree.0), None);
    }
}
