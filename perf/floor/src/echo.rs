//! The smallest echo: each read is answered with the bytes that it read. What is left of a server when even the end of a
//! request is not looked for: the kernel, and the runtime's way to it.

use std::{future::poll_fn, io};

use queen_fabric::rt::TcpStream;

/// Read at once, at most; the rest is another read.
const BUFFER_BYTES: usize = 64 * 1024;

/// Echoes one connection until its client closes it.
///
/// # Errors
///
/// Of the socket.
pub async fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await?;
        if read == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let written = poll_fn(|cx| stream.poll_write(cx, rest)).await?;
            rest = &rest[written..];
        }
    }
}
