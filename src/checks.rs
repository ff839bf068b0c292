//! What the machine must offer before an executor starts, and the limits that are ours to raise.
//!
//! The runtime fails late and in its own words where io_uring is missing; here each thing is tried
//! by itself and named with the command that puts it right. Called by `boot`, before any thread.

use std::fs;
use std::io;

use io_uring::IoUring;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The first kernel whose io_uring has everything the runtime asks for.
const KERNEL_MIN: (u32, u32) = (5, 13);

/// Descriptors kept from connections: the log, the store's files, peers, a margin for `accept`.
const RESERVED_FILES: u64 = 128;

/// Descriptors that one executor holds: its rings, its wake-ups, its listener.
const FILES_PER_EXECUTOR: u64 = 32;

/// Where the kernel says whether io_uring is switched off: 0 no, 1 for the unprivileged, 2 for all.
const IO_URING_DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

/// What this machine does not offer, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The kernel is older than io_uring as it is needed.
    #[error("kernel {release} is too old: 5.13 or newer is needed")]
    Kernel {
        /// As `uname -r` says it.
        release: String,
    },
    /// io_uring is switched off.
    #[error(
        "io_uring is switched off (kernel.io_uring_disabled = {level}): run `sysctl kernel.io_uring_disabled=0` as root"
    )]
    Disabled {
        /// The sysctl's value.
        level: u8,
    },
    /// io_uring is refused although the kernel has it: a container's filter, most of the time.
    #[error(
        "io_uring is refused ({source}): in a container, start it with `docker run --security-opt seccomp=unconfined` or a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Refused {
        /// The kernel's answer.
        source: io::Error,
    },
    /// Too few files may be open, and the hard limit forbids more.
    #[error(
        "{open_files} open files are too few for {wanted} connections: run `ulimit -n {needed}` as root (LimitNOFILE={needed} in a systemd unit, `docker run --ulimit nofile={needed}`){hint}"
    )]
    OpenFiles {
        /// The limit.
        open_files: u64,
        /// Connections that were asked for, or the least that make sense.
        wanted: u64,
        /// The limit that would do.
        needed: u64,
        /// The other way out: a lower setting, where one was set.
        hint: &'static str,
    },
}

/// Raises the soft limit of open files to the hard one, and says how many there may be; `u64::MAX` is no limit.
#[must_use]
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

/// Whether executors can start here.
///
/// # Errors
/// The first thing that is missing; see [`CheckError`].
pub fn io_uring() -> Result<(), CheckError> {
    let uname = rustix::system::uname();
    kernel(&uname.release().to_string_lossy())?;
    match IoUring::new(2) {
        Ok(_ring) => Ok(()),
        Err(source) => Err(refusal(source, fs::read_to_string(IO_URING_DISABLED).ok())),
    }
}

/// Why a ring could not be had, given what the sysctl says, if there is one.
fn refusal(source: io::Error, disabled: Option<String>) -> CheckError {
    match disabled.and_then(|text| text.trim().parse().ok()) {
        Some(level @ 1..) if source.kind() == io::ErrorKind::PermissionDenied => CheckError::Disabled { level },
        _ => CheckError::Refused { source },
    }
}

/// A release that does not begin with two numbers passes: the ring itself is the better test.
fn kernel(release: &str) -> Result<(), CheckError> {
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < KERNEL_MIN => {
            Err(CheckError::Kernel { release: release.to_owned() })
        }
        _ => Ok(()),
    }
}

/// How many connections the node takes: what was asked for, or what the open-file limit leaves.
///
/// # Errors
/// [`CheckError::OpenFiles`] when the limit does not carry what was asked for, or anything at all.
pub fn max_connections(open_files: u64, executors: usize, wanted: Option<u64>) -> Result<u64, CheckError> {
    let reserved = RESERVED_FILES + FILES_PER_EXECUTOR * executors as u64;
    let room = open_files.saturating_sub(reserved);
    match wanted {
        Some(wanted) if wanted > room => Err(CheckError::OpenFiles {
            open_files,
            wanted,
            needed: wanted + reserved,
            hint: ", or lower QUEEN_HTTP_MAX_CONNECTIONS",
        }),
        Some(wanted) => Ok(wanted),
        None if room == 0 => Err(CheckError::OpenFiles { open_files, wanted: 1024, needed: 1024 + reserved, hint: "" }),
        None => Ok(room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_run_executors() {
        io_uring().unwrap();
    }

    #[test]
    fn the_raised_limit_is_the_hard_one() {
        assert_eq!(raise_open_files(), getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX));
    }

    #[test]
    fn a_kernel_from_five_thirteen_on_passes() {
        for release in ["5.13.0", "5.15.0-28-amd64", "6.1", "10.0.0", "custom"] {
            assert!(kernel(release).is_ok(), "{release}");
        }
        for release in ["5.12.19", "4.19.0-26-amd64", "3.10"] {
            assert!(kernel(release).is_err(), "{release}");
        }
    }

    #[test]
    fn a_ring_refused_by_the_sysctl_names_the_sysctl() {
        let refused = || io::Error::from_raw_os_error(1);
        let said = |disabled: &str| refusal(refused(), Some(disabled.into())).to_string();
        assert!(said("2\n").contains("sysctl kernel.io_uring_disabled=0"));
        assert!(said("0\n").contains("--security-opt"));
        assert!(refusal(refused(), None).to_string().contains("--security-opt"));
    }

    #[test]
    fn connections_leave_room_for_the_brokers_own_files() {
        assert_eq!(max_connections(20_000, 2, None).unwrap(), 19_808);
        assert_eq!(max_connections(20_000, 2, Some(500)).unwrap(), 500);
    }

    #[test]
    fn more_connections_than_files_name_the_limit_that_would_do() {
        let said = max_connections(1024, 2, Some(1000)).unwrap_err().to_string();
        assert!(said.contains("ulimit -n 1192"), "{said}");
        assert!(said.contains("QUEEN_HTTP_MAX_CONNECTIONS"), "{said}");
        assert!(max_connections(100, 2, None).is_err());
    }
}
