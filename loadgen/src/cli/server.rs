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

/// The processes of a server on this machine.
#[derive(Clone, Debug)]
pub struct Server {
    pids: Vec<u32>,
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
            None => Ok(Self { pids: pids.to_vec() }),
        }
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
        (!pids.is_empty()).then_some(Self { pids })
    }

    /// What it has used so far; a process that has ended counts nothing.
    pub fn usage(&self) -> Usage {
        self.pids.iter().filter_map(|pid| Usage::of_process(*pid)).fold(Usage::default(), |sum, one| Usage {
            cpu: sum.cpu + one.cpu,
            rss_bytes: sum.rss_bytes + one.rss_bytes,
            peak_rss_bytes: sum.peak_rss_bytes + one.peak_rss_bytes,
        })
    }
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
        Some(Self {
            cpu: cpu_time(&fs::read_to_string(directory.join("stat")).ok()?)?,
            rss_bytes: bytes("VmRSS"),
            peak_rss_bytes: bytes("VmHWM"),
        })
    }
}

/// User and system time out of /proc/PID/stat.
fn cpu_time(stat: &str) -> Option<Duration> {
    // The name of the program is in parentheses and may hold any byte; after it come fields without blanks, of which
    // utime and stime are the 12th and 13th.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
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
    use std::{net::TcpListener, process, time::Instant};

    use super::*;

    #[test]
    fn the_process_that_listens_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::listening_at(listener.local_addr().unwrap()).unwrap();
        assert_eq!(server.pids, [process::id()]);
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
        let stat = format!("7 (a) b (c)) S 1 1 1 0 -1 0 0 0 0 0 {ticks} {ticks} 0 0 20 0");
        assert_eq!(cpu_time(&stat), Some(Duration::from_secs(2)));
    }
}
