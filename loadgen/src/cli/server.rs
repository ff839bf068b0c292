//! What the server uses of this machine: which processes it is, their CPU time and their memory, out of /proc.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::machine::{field, kib_in_bytes};

/// What the server used, in a report.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct ServerUse {
    /// User and system time for each message (of request-reply: each round trip); `None` if none came.
    pub cpu_us_per_message: Option<f64>,
    /// Resident memory at the end of the measured part.
    pub rss_bytes: u64,
    /// The most resident memory since its start.
    pub peak_rss_bytes: u64,
}

/// What the server used, and the PostgreSQL that it keeps its messages in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// `None` if nobody knows which process the server is.
    pub server: Option<ServerUse>,
    /// `None` if none was named.
    pub postgres: Option<ServerUse>,
}

/// The processes of a server on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// These.
    Processes(Vec<u32>),
    /// This one with all its children, those included that have ended and been waited for: a PostgreSQL by its
    /// postmaster.
    Family(u32),
}

/// What a server has used up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    cpu: Duration,
    rss_bytes: u64,
    peak_rss_bytes: u64,
}

impl Server {
    /// The processes that are named.
    ///
    /// # Errors
    ///
    /// The number of one that is not there.
    pub fn named(pids: &[u32]) -> Result<Self, u32> {
        match pids.iter().find(|pid| Usage::of_process(**pid).is_none()) {
            Some(pid) => Err(*pid),
            None => Ok(Self::Processes(pids.to_vec())),
        }
    }

    /// The process of this number with its children.
    ///
    /// # Errors
    ///
    /// The number, if it is not there.
    pub fn family_of(pid: u32) -> Result<Self, u32> {
        Usage::of_process(pid).map(|_| Self::Family(pid)).ok_or(pid)
    }

    /// The process that listens at `address`, if that is here and this process may look.
    pub fn listening_at(address: SocketAddr) -> Option<Self> {
        if !is_local(address.ip()) {
            return None;
        }
        let inodes: Vec<_> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listening_inodes(&table, address.port()))
            .collect();
        let links: Vec<_> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        // A process of another user does not show its files.
        let mut pids: Vec<_> = processes().filter(|pid| holds_any(*pid, &links).unwrap_or(false)).collect();
        pids.sort_unstable();
        (!pids.is_empty()).then_some(Self::Processes(pids))
    }

    /// What it has used so far; a process that has ended counts nothing.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Processes(pids) => sum(pids.iter().filter_map(|pid| Usage::of_process(*pid))),
            Self::Family(parent) => {
                let is_of_it = |pid: &u32| *pid == *parent || Stat::of(*pid).is_some_and(|stat| stat.parent == *parent);
                sum(processes().filter(is_of_it).filter_map(Usage::with_ended_children))
            }
        }
    }
}

/// Of several processes together. Memory that they share counts for each.
fn sum(usages: impl Iterator<Item = Usage>) -> Usage {
    usages.fold(Usage::default(), |sum, one| Usage {
        cpu: sum.cpu + one.cpu,
        rss_bytes: sum.rss_bytes + one.rss_bytes,
        peak_rss_bytes: sum.peak_rss_bytes + one.peak_rss_bytes,
    })
}

impl Usage {
    /// What was used from `start` to this moment, in which `messages` passed.
    pub fn since(&self, start: &Self, messages: u64) -> ServerUse {
        let cpu_us = self.cpu.saturating_sub(start.cpu).as_secs_f64() * 1e6;
        ServerUse {
            cpu_us_per_message: (messages > 0).then(|| cpu_us / messages as f64),
            rss_bytes: self.rss_bytes,
            peak_rss_bytes: self.peak_rss_bytes,
        }
    }

    fn of_process(pid: u32) -> Option<Self> {
        let directory = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(directory.join("status")).ok()?;
        let bytes = |name| field(&status, name).and_then(kib_in_bytes).unwrap_or(0);
        Some(Self { cpu: Stat::of(pid)?.cpu, rss_bytes: bytes("VmRSS"), peak_rss_bytes: bytes("VmHWM") })
    }

    /// With the CPU time of children that it has waited for.
    fn with_ended_children(pid: u32) -> Option<Self> {
        let usage = Self::of_process(pid)?;
        let stat = Stat::of(pid)?;
        Some(Self { cpu: stat.cpu + stat.ended_children, ..usage })
    }
}

/// What is read out of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// User and system time.
    cpu: Duration,
    /// The same of children that have ended and been waited for.
    ended_children: Duration,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name of the program is in parentheses and may hold any byte; after it come fields without blanks, of which
        // the parent is the second, and utime, stime, cutime and cstime are the 12th to the 15th.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            cpu: time(ticks(11)? + ticks(12)?),
            ended_children: time(ticks(13)? + ticks(14)?),
        })
    }
}

/// Whether an address is one of this machine's: only those can be bound.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// The inodes of the sockets that listen on `port`, out of /proc/net/tcp or tcp6.
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let rows = table.lines().skip(1).filter_map(|line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (_, port_hex) = columns.next()?.rsplit_once(':')?;
        let state = columns.nth(1)?;
        let inode = columns.nth(5)?.parse().ok()?;
        (state == LISTEN && u16::from_str_radix(port_hex, 16) == Ok(port)).then_some(inode)
    });
    rows.collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn holds_any(pid: u32, links: &[String]) -> io::Result<bool> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor may be closed between the two calls.
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        if links.iter().any(|wanted| link.as_os_str() == wanted.as_str()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, process, thread, time::Instant};

    use super::*;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::listening_at(listener.local_addr().unwrap()).unwrap();
        assert_eq!(server, Server::Processes(vec![process::id()]));
        let usage = server.usage();
        assert!(usage.rss_bytes > 100_000 && usage.peak_rss_bytes >= usage.rss_bytes, "{usage:?}");
    }

    #[test]
    fn nobody_is_found_where_nobody_listens_or_elsewhere() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(Server::listening_at(address).is_none());
        assert!(Server::listening_at("192.0.2.1:80".parse().unwrap()).is_none());
    }

    #[test]
    fn work_shows_in_cpu_time() {
        let server = Server::named(&[process::id()]).unwrap();
        let start = server.usage();
        let began = Instant::now();
        // Until the kernel has counted five ticks or more, however busy the machine is.
        while server.usage().cpu < start.cpu + Duration::from_millis(50) && began.elapsed() < Duration::from_secs(60) {
            std::hint::spin_loop();
        }
        let used = server.usage().since(&start, 1000);
        assert!(used.cpu_us_per_message.unwrap() >= 50.0, "{used:?}");
        assert_eq!(server.usage().since(&start, 0).cpu_us_per_message, None);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        assert_eq!(Server::named(&[process::id(), u32::MAX]).unwrap_err(), u32::MAX);
    }

    #[test]
    fn a_program_may_have_any_name() {
        let ticks = rustix::param::clock_ticks_per_second();
        let stat = format!("7 (a) b (c)) S 3 1 1 0 -1 0 0 0 0 0 {ticks} {ticks} {ticks} 0 20 0");
        let wanted = Stat { parent: 3, cpu: Duration::from_secs(2), ended_children: Duration::from_secs(1) };
        assert_eq!(Stat::parse(&stat), Some(wanted));
    }

    #[test]
    fn a_child_counts_while_it_lives_and_after_it_was_waited_for() {
        let family = Server::family_of(process::id()).unwrap();
        let own = Server::named(&[process::id()]).unwrap();
        let children = || family.usage().cpu.saturating_sub(own.usage().cpu);
        let before = children();
        let mut child = process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let began = Instant::now();
        let work = Duration::from_millis(100);
        while children() < before + work && began.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(children() >= before + work, "while it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(children() >= before + work, "when it has ended");
    }
}
