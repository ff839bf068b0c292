//! The runtime's door: executors, deadlines, sockets and the reserved port.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream as StdStream},
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use queen_fabric::rt::{
    Deadline, Executor, ExecutorError, Notify, TcpListener, TcpStream, reserve_port, sleep, spawn_local, yield_now,
};

fn run<F: Future<Output = T> + 'static, T: Send + 'static>(body: impl FnOnce() -> F + Send + 'static) -> T {
    Executor::spawn("test", None, Duration::ZERO, body).unwrap().join().unwrap()
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

#[test]
fn an_executor_that_panics_says_so() {
    let handle = Executor::spawn("panics", None, Duration::ZERO, || async { panic!("on purpose") }).unwrap();
    assert!(matches!(handle.join(), Err(ExecutorError::Panicked)));
}

#[test]
fn an_executor_is_not_pinned_to_a_cpu_that_does_not_exist() {
    let spawned = Executor::spawn("nowhere", Some(8_000), Duration::ZERO, || async {});
    assert!(matches!(spawned, Err(ExecutorError::Start(_))));
}

#[test]
fn a_dropped_task_is_cancelled_and_a_detached_one_runs() {
    run(|| async {
        let ran = Rc::new(Cell::new(0));
        let (dropped, detached) = (Rc::clone(&ran), Rc::clone(&ran));
        drop(spawn_local(async move { dropped.set(dropped.get() + 1) }));
        spawn_local(async move { detached.set(detached.get() + 10) }).detach();
        while ran.get() == 0 {
            yield_now().await;
        }
        assert_eq!(ran.get(), 10);
    });
}

#[test]
fn tasks_that_are_left_are_dropped_on_their_own_thread() {
    struct Told(std::sync::mpsc::Sender<std::thread::ThreadId>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).unwrap();
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    let executor = run(move || async move {
        for wait in [false, true] {
            let kept = Told(tell.clone());
            spawn_local(async move {
                let _kept = kept;
                if wait {
                    std::future::pending::<()>().await;
                }
                sleep(Duration::from_secs(3_600)).await;
            })
            .detach();
        }
        yield_now().await;
        std::thread::current().id()
    });
    assert_eq!(told.iter().collect::<Vec<_>>(), [executor, executor]);
}

#[test]
fn a_task_that_panics_ends_its_executor() {
    let handle = Executor::spawn("panics", None, Duration::ZERO, || async {
        spawn_local(async { panic!("on purpose") }).detach();
        std::future::pending::<()>().await;
    });
    assert!(matches!(handle.unwrap().join(), Err(ExecutorError::Panicked)));
}

#[test]
fn notifications_before_the_wait_are_kept_as_one() {
    run(|| async {
        let notify = Notify::new();
        notify.notify();
        notify.notify();
        notify.wait().await;
        assert!(poll_fn(|cx| Poll::Ready(notify.poll_wait(cx))).await.is_pending());
        notify.notify();
        notify.wait().await;
    });
}

#[test]
fn two_executors_wake_each_other() {
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    };
    const TURNS: u64 = 20_000;
    /// Whose turn it is by parity, and the wakers of both.
    #[derive(Default)]
    struct Table {
        turn: AtomicU64,
        players: [Mutex<Option<std::task::Waker>>; 2],
    }
    let table = Arc::new(Table::default());
    let players = [0_u64, 1].map(|me| {
        let table = Arc::clone(&table);
        let play = move || async move {
            let me_at = usize::try_from(me).unwrap();
            poll_fn(|cx| {
                *table.players[me_at].lock().unwrap() = Some(cx.waker().clone());
                let turn = table.turn.load(Ordering::SeqCst);
                if turn % 2 == me && turn < TURNS {
                    table.turn.store(turn + 1, Ordering::SeqCst);
                    let other = table.players[1 - me_at].lock().unwrap().clone();
                    if let Some(other) = other {
                        other.wake();
                    }
                }
                if table.turn.load(Ordering::SeqCst) >= TURNS { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        };
        Executor::spawn("plays", None, Duration::ZERO, play).unwrap()
    });
    for player in players {
        player.join().unwrap();
    }
}

#[test]
fn a_task_that_yields_lets_sockets_and_timers_be_served() {
    run(|| async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        let served = Rc::new(Cell::new(false));
        let done = Rc::clone(&served);
        spawn_local(async move {
            sleep(Duration::from_millis(2)).await;
            let _stream = listener.accept().await.unwrap();
            done.set(true);
        })
        .detach();
        let client = std::thread::spawn(move || StdStream::connect(address).unwrap());
        // Busy all the time: only its yields let anything else happen.
        while !served.get() {
            yield_now().await;
        }
        client.join().unwrap();
    });
}

#[test]
fn a_deadline_is_never_early() {
    run(|| async {
        for after_us in [0, 1, 300, 1_000, 1_700, 5_300] {
            let at = Instant::now() + Duration::from_micros(after_us);
            queen_fabric::rt::sleep_until(at).await;
            assert!(Instant::now() >= at);
        }
        sleep(Duration::from_micros(1)).await;
    });
}

#[test]
fn a_deadline_waits_without_being_polled_again() {
    run(|| async {
        let mut deadline = Deadline::new();
        let mut polls = 0;
        for _ in 0..5 {
            deadline.set(Some(Instant::now() + Duration::from_micros(1_500)));
            poll_fn(|cx| {
                polls += 1;
                deadline.poll(cx)
            })
            .await;
        }
        // One poll to wait and one when the time has come; a timer that fires early would add many.
        assert_eq!(polls, 10);
    });
}

#[test]
fn a_deadline_moves_earlier_and_later() {
    run(|| async {
        let hour = Duration::from_secs(3_600);
        let mut deadline = Deadline::new();
        let mut polled = 0;
        let started = Instant::now();
        poll_fn(|cx| {
            polled += 1;
            if polled == 1 {
                deadline.set(Some(started + hour));
                assert!(deadline.poll(cx).is_pending());
                deadline.set(Some(started + 2 * hour));
                assert!(deadline.poll(cx).is_pending());
                deadline.set(Some(started + Duration::from_millis(2)));
            }
            deadline.poll(cx)
        })
        .await;
        assert!(started.elapsed() < hour);
        assert_eq!(deadline.at(), None);
    });
}

/// Accepts one connection made by `client`, which runs on a thread of its own, and hands it to `serve`.
fn serve_one<F, T>(
    address: SocketAddr,
    client: impl FnOnce(StdStream) + Send + 'static,
    serve: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> T
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    run(move || async move {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || client(StdStream::connect(address).unwrap()));
        let served = serve(listener.accept().await.unwrap()).await;
        // The client ends once it has read what was served; the listener stays until then.
        client.join().unwrap();
        served
    })
}

async fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, buffer)).await
}

#[test]
fn a_stream_reads_and_writes_over_ipv4_and_ipv6() {
    for address in [loopback(), (Ipv6Addr::LOCALHOST, 0).into()] {
        let client = |mut stream: StdStream| {
            stream.write_all(b"question").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "the answer");
        };
        serve_one(address, client, |mut stream| async move {
            let mut buffer = [0; 64];
            let mut length = 0;
            while length < 8 {
                length += read(&mut stream, &mut buffer[length..]).await.unwrap();
            }
            assert_eq!(&buffer[..length], b"question");
            let slices = [IoSlice::new(b"the "), IoSlice::new(b"answer")];
            assert_eq!(poll_fn(|cx| stream.poll_write_vectored(cx, &slices)).await.unwrap(), 10);
        });
    }
}

#[test]
fn the_end_of_a_clients_half_is_a_read_of_nothing_and_the_answer_still_goes_out() {
    let client = |mut stream: StdStream| {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "late");
    };
    serve_one(loopback(), client, |mut stream| async move {
        assert_eq!(read(&mut stream, &mut [0; 8]).await.unwrap(), 0);
        assert_eq!(poll_fn(|cx| stream.poll_write(cx, b"late")).await.unwrap(), 4);
        stream.shutdown(Shutdown::Write).unwrap();
    });
}

#[test]
fn a_stream_moves_to_another_executor_with_what_waits_in_it() {
    let client = |mut stream: StdStream| {
        stream.write_all(b"1").unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(b"2").unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"b");
    };
    serve_one(loopback(), client, |mut stream| async move {
        let mut byte = [0];
        read(&mut stream, &mut byte).await.unwrap();
        // Something waits to be read when the connection moves.
        assert!(poll_fn(|cx| Poll::Ready(stream.poll_read(cx, &mut byte))).await.is_pending());
        assert_eq!(poll_fn(|cx| stream.poll_write(cx, b"a")).await.unwrap(), 1);
        let fd = stream.into_fd();
        let moved = Executor::spawn("other", None, Duration::ZERO, move || async move {
            let mut stream = TcpStream::from_fd(fd).unwrap();
            let mut byte = [0];
            assert_eq!(read(&mut stream, &mut byte).await.unwrap(), 1);
            assert_eq!(&byte, b"2");
            assert_eq!(poll_fn(|cx| stream.poll_write(cx, b"b")).await.unwrap(), 1);
        });
        moved.unwrap().join().unwrap();
    });
}

#[test]
fn a_dropped_stream_is_closed() {
    let client = |mut stream: StdStream| assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    serve_one(loopback(), client, |stream| async move { drop(stream) });
}

#[test]
fn a_reserved_port_is_ours_alone_and_our_listeners_share_it() {
    run(|| async {
        let reserved = reserve_port(loopback()).unwrap();
        let address = reserved.address();
        assert_ne!(address.port(), 0);
        let taken = reserve_port(address).map(|_| ()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);

        let listeners = [TcpListener::bind(address).unwrap(), TcpListener::bind(address).unwrap()];
        assert_eq!(reserve_port(address).map(|_| ()).unwrap_err().kind(), ErrorKind::AddrInUse);

        // The socket that holds the port takes no connection: each comes to one of the listeners.
        let mut clients = Vec::new();
        for _ in 0..16 {
            clients.push(StdStream::connect(address).unwrap());
            poll_fn(|cx| {
                let mut accepted = listeners.iter().map(|listener| listener.poll_accept(cx));
                accepted.find(Poll::is_ready).map_or(Poll::Pending, |stream| stream.map(Result::unwrap))
            })
            .await;
        }
        drop(listeners);
        drop(clients);
        // The kernel gives a listener up once its ring has seen that nobody waits for connections any more.
        while StdStream::connect(address).is_ok() {
            yield_now().await;
        }
        assert!(StdStream::connect(address).is_err(), "with no listener left, nobody accepts");
    });
}

#[test]
fn a_port_with_only_listeners_on_it_is_taken() {
    run(|| async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(reserve_port(address).map(|_| ()).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
    });
}
