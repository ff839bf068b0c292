//! A connection to a peer's HTTP port, up to the point at which it speaks the peer link's protocol.

use std::{future::poll_fn, io, sync::Arc};

use queen_fabric::rt::TcpStream;
use queen_wire::peer::LABEL;
use rustls::{ClientConnection, pki_types::ServerName};

use super::{Cluster, PATH};
use crate::connection::Stream;

/// The largest head of the answer to the request for an upgrade.
const HEAD_BYTES_MAX: usize = 4 << 10;

/// A base address in its parts.
struct Address<'a> {
    is_tls: bool,
    host: &'a str,
    port: u16,
}

/// Reads `http://host:port` or `https://host:port`, with brackets around an address of version 6.
fn parse(http_addr: &str) -> Option<Address<'_>> {
    let (scheme, authority) = http_addr.split_once("://")?;
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let (host, port) = authority.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(Address { is_tls, host, port: port.parse().ok()? })
}

/// Connects to a peer's HTTP port and has it speak the peer link's protocol from there on: the connection, and what it
/// has said of that already.
pub(super) async fn dial(cluster: &Cluster, http_addr: &str) -> io::Result<(Stream, Vec<u8>)> {
    let Some(address) = parse(http_addr) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{http_addr:?} is no base address")));
    };
    let tcp = TcpStream::connect_to(address.host, address.port).await?;
    let mut stream = if address.is_tls {
        let name = ServerName::try_from(address.host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(Arc::clone(&cluster.tls), name).map_err(io::Error::other)?;
        Stream::tls_to(tcp, session)
    } else {
        Stream::Plain(tcp)
    };
    let authority = http_addr.split_once("://").map_or(http_addr, |(_, authority)| authority);
    let request =
        format!("GET {PATH} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: {LABEL}\r\n\r\n");
    write_all(&mut stream, request.as_bytes()).await?;
    let said = read_head(&mut stream).await?;
    Ok((stream, said))
}

async fn write_all(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        sent += poll_fn(|cx| stream.poll_write(cx, &bytes[sent..])).await?;
    }
    Ok(())
}

/// Reads the head of the answer, which has to switch protocols; what came behind it.
async fn read_head(stream: &mut Stream) -> io::Result<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut head = Vec::new();
    loop {
        if let Some(at) = head.windows(END.len()).position(|window| window == END) {
            if head.starts_with(b"HTTP/1.1 101 ") {
                return Ok(head.split_off(at + END.len()));
            }
            let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
            return Err(io::Error::other(format!("it answered {:?}", String::from_utf8_lossy(line))));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("its answer does not end"));
        }
        let mut buffer = [0; 1024];
        match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_address_is_a_scheme_a_host_and_a_port() {
        let parts = |text: &str| parse(text).map(|address| (address.is_tls, address.host.to_owned(), address.port));
        assert_eq!(parts("http://10.0.0.1:6632"), Some((false, "10.0.0.1".to_owned(), 6632)));
        assert_eq!(parts("https://queen-1.internal:443"), Some((true, "queen-1.internal".to_owned(), 443)));
        assert_eq!(parts("http://[fe80::1]:6632"), Some((false, "fe80::1".to_owned(), 6632)));
        for text in ["10.0.0.1:6632", "http://10.0.0.1", "ftp://a:1", "http://a:99999", ""] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
