//! What a run shows while it goes, on stderr: a bar on a terminal, a line a second elsewhere.

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::units;
use crate::{Plan, run::Snapshot};

/// How often the bar moves.
pub const BAR_INTERVAL: Duration = Duration::from_millis(100);
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of one run.
pub struct Progress {
    face: Face,
    plan: Plan,
    next: Instant,
    /// The last line.
    last: String,
}

enum Face {
    Bar(ProgressBar),
    Lines,
    Quiet,
}

impl Progress {
    /// A bar if stderr is a terminal, else lines, or nothing at all.
    pub fn new(plan: &Plan, quiet: bool) -> Self {
        let face = if quiet {
            Face::Quiet
        } else if io::stderr().is_terminal() {
            let bar = ProgressBar::new(millis(plan.duration));
            let template = "[{bar:10}] {wide_msg}";
            bar.set_style(ProgressStyle::with_template(template).expect("a template of ours").progress_chars("=> "));
            Face::Bar(bar)
        } else {
            Face::Lines
        };
        Self { face, plan: plan.clone(), next: Instant::now(), last: String::new() }
    }

    /// Shows where the run is, if it is time to.
    pub fn show(&mut self, snapshot: &Snapshot) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        match &self.face {
            Face::Bar(bar) => {
                self.next = now + BAR_INTERVAL;
                bar.set_position(millis(snapshot.measured.unwrap_or_default()));
                bar.set_message(line(snapshot, self.plan.duration));
            }
            Face::Lines => {
                self.next = now + LINE_INTERVAL;
                let line = line(snapshot, self.plan.duration);
                // A wait says so once.
                if line != self.last {
                    eprintln!("{line}");
                }
                self.last = line;
            }
            Face::Quiet => {}
        }
    }

    /// Takes the bar away, so that the report stands alone.
    pub fn finish(self) {
        if let Face::Bar(bar) = self.face {
            bar.finish_and_clear();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn line(snapshot: &Snapshot, duration: Duration) -> String {
    let Some(measured) = snapshot.measured else { return "warming up".into() };
    if measured >= duration {
        return format!("{:.1} s measured, waiting for the last messages", duration.as_secs_f64());
    }
    let elapsed_s = measured.as_secs_f64();
    let rate = if elapsed_s > 0.0 { snapshot.received.max(snapshot.sent) as f64 / elapsed_s } else { 0.0 };
    let latency = |ns: u64| units::micros(ns as f64 / 1e3);
    format!(
        "{elapsed_s:.1}/{:.1} s  {}  p50 {}  p99 {}  p99.9 {}  errors {}",
        duration.as_secs_f64(),
        units::rate(rate),
        latency(snapshot.p50_ns),
        latency(snapshot.p99_ns),
        latency(snapshot.p999_ns),
        units::count(snapshot.errors),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_it_goes() {
        let ten = Duration::from_secs(10);
        assert_eq!(line(&Snapshot::default(), ten), "warming up");
        let snapshot = Snapshot {
            measured: Some(Duration::from_secs(2)),
            sent: 2000,
            received: 1990,
            errors: 1,
            p50_ns: 120_000,
            p99_ns: 900_000,
            p999_ns: 2_500_000,
        };
        assert_eq!(line(&snapshot, ten), "2.0/10.0 s  1,000/s  p50 120 µs  p99 900 µs  p99.9 2.50 ms  errors 1");
    }
}
