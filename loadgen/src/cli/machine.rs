//! What a run ran on.

use std::{fs, thread};

use serde::{Deserialize, Serialize};

/// A machine, as far as it explains figures.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// The processor's model, or its architecture where it names none.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// The machine of this process.
    pub fn of_this_process() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let model = field(&read("/proc/cpuinfo"), "model name").map(str::to_owned);
        let memory = field(&read("/proc/meminfo"), "MemTotal").and_then(kib_in_bytes);
        Self {
            cpu: model.unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.unwrap_or(0),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        }
    }
}

/// The value of the first line `name : value` of a file of /proc.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// The bytes of `123 kB`, as /proc writes sizes.
pub fn kib_in_bytes(text: &str) -> Option<u64> {
    let kib: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_are_read() {
        let text = "model name\t: Fast 3000\nMemTotal:       16 kB\n";
        assert_eq!(field(text, "model name"), Some("Fast 3000"));
        assert_eq!(field(text, "MemTotal").and_then(kib_in_bytes), Some(16_384));
        assert_eq!(field(text, "Mem"), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let machine = Machine::of_this_process();
        assert!(machine.memory_bytes > 1 << 20 && machine.cores > 0);
        assert!(machine.kernel.contains('.'), "{machine:?}");
    }
}
