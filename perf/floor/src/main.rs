//! The floor: the least that a server on this runtime can do with a request, to measure the broker against.
//!
//! Two of them. With [`recorded`] answers it moves the very bytes that the broker moves: what the broker costs above it
//! is what the broker does. As an [`echo`] it does not even look where a request ends: what that costs is the kernel and
//! the runtime. Never to be reached by anybody but `perf/compare` and `perf/compare-floor`.

mod echo;
mod recorded;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
    time::Duration,
};

use mimalloc::MiMalloc;
use queen_fabric::rt::{Executor, TcpListener, reserve_port, spawn_local};

use recorded::Answers;

// The broker's allocator, so that it is no difference.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const USAGE: &str = "\
usage: floor --port PORT [--cpu CPU] --answers DIR   answers with the recorded files push, push-batch and pop
       floor --port PORT [--cpu CPU] --echo          answers each read with the bytes that it read";

/// Where to listen, on which core if on a certain one, and what to answer.
struct Arguments {
    port: u16,
    cpu: Option<usize>,
    answers: AnswersFrom,
}

enum AnswersFrom {
    Dir(PathBuf),
    Echo,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let (mut port, mut cpu, mut answers) = (None, None, None);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--echo" => answers = Some(AnswersFrom::Echo),
                "--answers" => answers = Some(AnswersFrom::Dir(PathBuf::from(words.next()?))),
                "--port" => port = Some(words.next()?.parse().ok()?),
                "--cpu" => cpu = Some(words.next()?.parse().ok()?),
                _ => return None,
            }
        }
        Some(Self { port: port?, cpu, answers: answers? })
    }
}

/// What every connection is served with.
#[derive(Clone)]
enum Service {
    Recorded(Rc<Answers>),
    Echo,
}

async fn listen(address: SocketAddr, service: Service) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("listening on {address}");
    loop {
        let stream = listener.accept().await?;
        let service = service.clone();
        spawn_local(async move {
            // A client that goes away ends its connection and nothing else.
            let _ = match service {
                Service::Recorded(answers) => recorded::serve(stream, &answers).await,
                Service::Echo => echo::serve(stream).await,
            };
        })
        .detach();
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let answers = match arguments.answers {
        AnswersFrom::Dir(dir) => Some(Answers::read(&dir)?),
        AnswersFrom::Echo => None,
    };
    let reserved = reserve_port(SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port)))?;
    let address = reserved.address();
    let serve = move || {
        let service = answers.map_or(Service::Echo, |answers| Service::Recorded(Rc::new(answers)));
        listen(address, service)
    };
    Executor::spawn("floor", arguments.cpu, Duration::ZERO, serve)?.join()??;
    Ok(())
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}
