//! A proxy in this process between a broker and its peer: it passes bytes on, loses them, changes or keeps them.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Changes bytes on their way to the listener.
pub type Change = Box<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

/// A running proxy. Its threads end with the test's process.
pub struct Proxy {
    /// Where brokers dial it.
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Bytes to the listener are lost, and nobody is told.
    loses: AtomicBool,
    change: Mutex<Option<Change>>,
    /// What was sent to the listener, by connection.
    sent: Mutex<Vec<Vec<u8>>>,
}

impl Proxy {
    /// One that leads to this port.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for dialer in listener.incoming().map_while(Result::ok) {
                let Ok(listener) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { continue };
                serve(dialer, listener, &of_thread);
            }
        });
        Self { port, state }
    }

    /// From here on bytes to the listener are lost, or are not any more.
    pub fn lose(&self, loses: bool) {
        self.state.loses.store(loses, Ordering::SeqCst);
    }

    /// Changes bytes to the listener from here on.
    pub fn change(&self, change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) {
        *self.state.change.lock().expect("the change") = Some(Box::new(change));
    }

    /// What was sent to the listener, by connection.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.state.sent.lock().expect("what was sent").clone()
    }
}

fn serve(dialer: TcpStream, listener: TcpStream, state: &Arc<State>) {
    let connection = {
        let mut sent = state.sent.lock().expect("what was sent");
        sent.push(Vec::new());
        sent.len() - 1
    };
    let (back_from, back_to) = (listener.try_clone().expect("a socket"), dialer.try_clone().expect("a socket"));
    let state = Arc::clone(state);
    thread::spawn(move || {
        pass(dialer, listener, |bytes| {
            if state.loses.load(Ordering::SeqCst) {
                return Vec::new();
            }
            let bytes = match &*state.change.lock().expect("the change") {
                Some(change) => change(bytes),
                None => bytes,
            };
            state.sent.lock().expect("what was sent")[connection].extend_from_slice(&bytes);
            bytes
        });
    });
    thread::spawn(move || pass(back_from, back_to, |bytes| bytes));
}

fn pass(mut from: TcpStream, mut to: TcpStream, through: impl Fn(Vec<u8>) -> Vec<u8>) {
    let mut buffer = [0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&through(buffer[..read].to_vec())).is_err() {
            break;
        }
    }
    let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
