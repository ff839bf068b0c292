//! Where the broker is: a URL into a [`Target`].

use std::net::{SocketAddr, ToSocketAddrs};

use super::error::CliError;
use crate::plan::{DriverKind, Target};

/// What each driver's URLs begin with, and the port of its broker where a URL names none.
const SCHEMES: [(&str, DriverKind, u16); 4] = [
    ("http", DriverKind::Queen, 6632),
    // Durable queues are spoken to at the same URLs: which of the two it is, is said by scenario or driver.
    ("http", DriverKind::Durable, 6632),
    ("nats", DriverKind::Nats, 4222),
    ("redis", DriverKind::Redis, 6379),
];

/// The broker on this machine, on its own port.
pub const DEFAULT_URL: &str = "http://127.0.0.1:6632";

/// Resolves `url`. Its scheme chooses the driver, unless one is named; without a scheme it is http.
///
/// # Errors
///
/// [`CliError::Target`], saying what a target looks like.
pub fn resolve(url: &str, driver: Option<DriverKind>) -> Result<(Target, DriverKind), CliError> {
    let wrong = |why: &str| CliError::Target { url: url.to_owned(), why: why.to_owned() };
    let (scheme, rest) = url.split_once("://").map_or((None, url), |(scheme, rest)| (Some(scheme), rest));
    let of_scheme = match scheme {
        None => None,
        Some(scheme) => Some(
            SCHEMES
                .iter()
                .find(|(known, ..)| *known == scheme)
                .ok_or_else(|| wrong("a target begins with http://, nats:// or redis://"))?
                .1,
        ),
    };
    let driver = driver.or(of_scheme).unwrap_or(DriverKind::Queen);
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '@', '?', '#']) {
        return Err(wrong("a target is a scheme, a host and a port, as in http://127.0.0.1:6632"));
    }
    let port = SCHEMES.iter().find(|(_, kind, _)| *kind == driver).expect("every driver has a scheme").2;
    // A colon within brackets belongs to an IPv6 address.
    let names_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let host = if names_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let addresses = host.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    let address = preferred(addresses).ok_or_else(|| wrong("the name has no address"))?;
    Ok((Target { url: url.to_owned(), address, host }, driver))
}

/// IPv4 before IPv6: a broker that binds 0.0.0.0 is not there on `localhost`'s ::1.
fn preferred(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    addresses.min_by_key(|address| !address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_chooses_the_driver_and_the_port() {
        for (url, driver, address) in [
            ("http://127.0.0.1:8080", DriverKind::Queen, "127.0.0.1:8080"),
            ("http://127.0.0.1/", DriverKind::Queen, "127.0.0.1:6632"),
            ("127.0.0.1", DriverKind::Queen, "127.0.0.1:6632"),
            ("nats://127.0.0.1", DriverKind::Nats, "127.0.0.1:4222"),
            ("redis://[::1]", DriverKind::Redis, "[::1]:6379"),
            ("redis://[::1]:7000", DriverKind::Redis, "[::1]:7000"),
        ] {
            let (target, found) = resolve(url, None).unwrap();
            assert_eq!((found, target.address.to_string().as_str()), (driver, address), "{url}");
            assert_eq!(target.url, url);
        }
    }

    #[test]
    fn a_named_driver_wins_over_the_scheme() {
        let (target, driver) = resolve("127.0.0.1", Some(DriverKind::Nats)).unwrap();
        assert_eq!((driver, target.host.as_str()), (DriverKind::Nats, "127.0.0.1:4222"));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for url in
            ["", "http://", "https://127.0.0.1", "http://127.0.0.1:80/queue", "http://u@127.0.0.1", "127.0.0.1:x"]
        {
            assert!(resolve(url, None).is_err(), "{url}");
        }
    }
}
