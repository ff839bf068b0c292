//! Before and after a run: whether the target answers, its queues declared, and removed again.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use super::{RunError, flow::Flow};
use crate::{
    driver::{self, Bound, Driver, Event, Listens, Owed},
    plan::{DriverKind, Plan, Target},
};

/// How long the target may take to answer one of these questions.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Asks the target whether it speaks the protocol, and makes its queues ready.
pub(super) fn prepare(plan: &Plan, flows: &[impl AsRef<Flow>]) -> Result<(), RunError> {
    let mut control = Control::open(plan)?;
    control.greet()?;
    control.ask(|driver, out| driver.probe(out))?;
    for flow in flows.iter().map(AsRef::as_ref).filter(|flow| flow.is_declared()) {
        for queue in &flow.queues {
            control.ask(|driver, out| driver.declare(queue, flow.bound(), out))?;
        }
    }
    Ok(())
}

/// Removes the run's queues. What can't be removed is left to the broker, which forgets idle queues.
pub(super) fn clean_up(plan: &Plan, flows: &[impl AsRef<Flow>]) {
    let Ok(mut control) = Control::open(plan) else { return };
    if control.greet().is_err() {
        return;
    }
    for flow in flows.iter().map(AsRef::as_ref) {
        for queue in &flow.queues {
            if control.ask(|driver, out| driver.remove(queue, flow.partitions, out)).is_err() {
                return;
            }
        }
    }
}

/// A connection that asks one thing after the other, and blocks.
struct Control<'a> {
    target: &'a Target,
    protocol: &'static str,
    driver: Box<dyn Driver>,
    stream: TcpStream,
    input: Vec<u8>,
}

/// Why there was no good answer.
enum Failure {
    Io(io::Error),
    Garbled,
    Refused(String),
}

impl<'a> Control<'a> {
    fn open(plan: &'a Plan) -> Result<Self, RunError> {
        let target = &plan.target;
        let open = || {
            let stream = TcpStream::connect_timeout(&target.address, ANSWER_MAX)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            stream.set_write_timeout(Some(ANSWER_MAX))?;
            Ok(stream)
        };
        let stream = open().map_err(|error: io::Error| {
            let url = &target.url;
            RunError::Unreachable(format!(
                "nothing answers at {url} ({error}): start the broker, or say where it is with --target"
            ))
        })?;
        let protocol = match plan.driver {
            DriverKind::Queen | DriverKind::Durable => "HTTP",
            DriverKind::Nats => "NATS",
            DriverKind::Redis => "Redis",
        };
        let driver = driver::new(plan.driver, target, Listens::No, Bound::Reject);
        Ok(Self { target, protocol, driver, stream, input: Vec::new() })
    }

    fn greet(&mut self) -> Result<(), RunError> {
        self.ask(|driver, out| driver.greet(out))
    }

    /// Sends what `operation` appends and waits for its answer, if it is owed one.
    fn ask(&mut self, operation: impl FnOnce(&mut dyn Driver, &mut Vec<u8>) -> Owed) -> Result<(), RunError> {
        let mut out = Vec::new();
        let owed = operation(&mut *self.driver, &mut out);
        let url = &self.target.url;
        self.exchange(&out, owed).map_err(|failure| {
            RunError::Unreachable(match failure {
                Failure::Io(error) => {
                    format!("{url} took the connection and gave no answer ({error}): see whether the broker is well")
                }
                Failure::Garbled => {
                    format!("what listens at {url} does not speak {}: check --target and --driver", self.protocol)
                }
                Failure::Refused(code) => format!(
                    "{url} refused to prepare the run with {code:?}: see whether it is a broker that --driver stands \
                     for, and what it says"
                ),
            })
        })
    }

    fn exchange(&mut self, out: &[u8], owed: Owed) -> Result<(), Failure> {
        self.stream.write_all(out).map_err(Failure::Io)?;
        let mut answer = (owed == Owed::Nothing).then_some(Ok(()));
        let mut piece = [0; 4096];
        loop {
            if let Some(answer) = answer {
                return answer;
            }
            let bytes = match self.stream.read(&mut piece).map_err(Failure::Io)? {
                0 => return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into())),
                bytes => bytes,
            };
            self.input.extend_from_slice(&piece[..bytes]);
            let on_event = &mut |event: Event<'_>| match event {
                Event::Answered { .. } => answer = Some(Ok(())),
                Event::Refused { code } | Event::PartRefused { code } => {
                    answer = Some(Err(Failure::Refused(code.to_owned())));
                }
                Event::Message { .. } => {}
            };
            let taken = self.driver.decode(&self.input, on_event).map_err(|_| Failure::Garbled)?;
            self.input.drain(..taken);
        }
    }
}
