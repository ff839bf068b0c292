//! A peer made by hand: it says what a test has it say.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
};

use queen_wire::mesh::{Dialer, Framing, Identity, Message, Next, Seal, Secret, append_frame};

use crate::common::PATIENCE;

/// What tells a mesh connection's handshake from others.
pub const LABEL: &str = "queen-mesh/1";

/// A connection that was dialled to a broker.
pub struct Peer {
    stream: TcpStream,
    seal: Option<Seal>,
}

impl Peer {
    /// Connects, and says nothing.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the broker listens");
        stream.set_nodelay(true).expect("nodelay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self { stream, seal: None }
    }

    /// Connects as a broker without a secret does.
    pub fn open(port: u16, id: &str) -> Self {
        let mut peer = Self::connect(port);
        peer.frame(&Dialer::old_form(None, id, &[1; 16]));
        peer
    }

    /// Connects and proves itself.
    pub fn proved(port: u16, secret: &str, id: &str, epoch: u64) -> Self {
        let mut peer = Self::connect(port);
        let (dialer, hello) = dialer(secret, id, epoch);
        peer.frame(&hello);
        let (tag, payload) = peer.read().expect("a challenge");
        let step = dialer.step(tag, &payload).expect("the broker's proof");
        peer.frame(&step.send);
        peer.seal = step.proven.seals.map(|seals| seals.forward);
        peer
    }

    /// Sends bytes; the broker may have closed.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let _closed = self.stream.write_all(bytes);
    }

    /// Sends a frame.
    pub fn frame(&mut self, (tag, payload): &(u8, Vec<u8>)) {
        let bytes = self.framed(*tag, payload);
        self.bytes(&bytes);
    }

    /// A frame as it would be sent next.
    pub fn framed(&mut self, tag: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_frame(&mut out, tag, payload, self.seal.as_mut());
        out
    }

    /// Says something.
    pub fn say(&mut self, message: &Message) {
        self.frame(&message.render());
    }

    /// The next frame without a seal.
    pub fn read(&mut self) -> io::Result<(u8, Vec<u8>)> {
        read_frame(&mut self.stream)
    }

    /// Fails unless the broker closes the connection.
    pub fn assert_closed(mut self) {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the broker leaves it open: {error}"),
            }
        }
    }
}

/// The dialer of a peer, and its first frame.
pub fn dialer(secret: &str, id: &str, epoch: u64) -> (Dialer, (u8, Vec<u8>)) {
    let secret = Secret::new(secret).expect("a secret");
    let me = Identity { server_id: id.to_owned(), http_addr: "http://0.0.0.0:1".to_owned(), epoch };
    Dialer::new(secret, LABEL, &me, "127.0.0.1:1", &[epoch as u8; 16])
}

/// The next frame without a seal.
pub fn read_frame(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut framing = Framing::unproven();
    framing.trust(None);
    let mut bytes = Vec::new();
    loop {
        match framing.next(&bytes).map_err(io::Error::other)? {
            Next::Frame { tag, payload, .. } => return Ok((tag, payload.to_vec())),
            Next::NeedMore { bytes: needed } => {
                let have = bytes.len();
                bytes.resize(needed, 0);
                stream.read_exact(&mut bytes[have..])?;
            }
        }
    }
}
