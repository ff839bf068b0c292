//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::settings::Settings;

const AFTER_HELP: &str = "\
Scenarios:
  push           pushes only
  pop            pops from a queue that is kept filled
  push-pop       pushed by some connections, popped by others, timed from end to end
  request-reply  a request to a worker and its reply
  fan-out        one producer, and groups that each see every message
  parked         idle long polls, then a push to each
  churn          request-reply with a new inbox for every request
  mixed          push-pop, request-reply and fan-out together
  durable-push   pushes to durable queues, which are then read back and checked
  durable-pop    pops a backlog of durable messages that is there beforehand
  durable-pipe   a durable push to a waiting pop, one message under way for each of --pairs

A scenario may also be a .toml file. Its keys are called as the flags are (scenario = \"push-pop\", rate = 1000),
with limits under [limits]. Flags win over the file.

Exit codes:
  0    the run passed
  1    a check failed or a limit is broken
  2    the run could not be made: bad input, unreachable target
  130  it was interrupted (143: by SIGTERM), and what was measured until then passed";

/// Puts load on a message broker, measures it, and checks what it measures.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version = env!("LOADGEN_COMMIT"), args_conflicts_with_subcommands = true)]
#[command(arg_required_else_help = true, after_help = AFTER_HELP, disable_help_subcommand = true, max_term_width = 120)]
pub struct Cli {
    /// What to do but a run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to do but a run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Draws the reports of --json over each other
    Plot(PlotArgs),
    /// Runs SLA files, and says which limit broke and by how much
    Sla(Box<SlaArgs>),
}

/// `loadgen SCENARIO`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// What to do: a word or a .toml file, see below
    pub scenario: Option<String>,
    /// What is said of the run.
    #[command(flatten)]
    pub settings: Settings,
    /// Takes its limits from an SLA file
    #[arg(long, value_name = "FILE")]
    pub sla: Option<PathBuf>,
    /// Finds the highest rate at which the limits hold: doubles from --rate on, then bisects
    #[arg(long, conflicts_with = "closed")]
    pub ramp: bool,
    /// Writes the report as JSON (- is stdout)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes the distribution of latencies in HdrHistogram's percentile format (.hgrm), in milliseconds
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Writes the plot there [default: loadgen-SCENARIO.svg]
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// How it is watched.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// How a run is watched.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The server's process, or several with commas [default: whoever listens at the target, if it is on this machine]
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub server_pid: Vec<u32>,
    /// The PostgreSQL whose CPU time is told beside the server's: its postmaster's process
    #[arg(long, value_name = "PID")]
    pub postgres_pid: Option<u32>,
    /// Shows no progress
    #[arg(long)]
    pub quiet: bool,
}

/// `loadgen plot`.
#[derive(Args, Debug)]
pub struct PlotArgs {
    /// Reports that --json wrote; the legend calls each by its file's name
    #[arg(required = true, value_name = "REPORT.json")]
    pub reports: Vec<PathBuf>,
    /// The picture
    #[arg(short, long, value_name = "FILE.svg", default_value = "loadgen.svg")]
    pub out: PathBuf,
}

/// `loadgen sla`.
#[derive(Args, Debug)]
pub struct SlaArgs {
    /// SLA files
    #[arg(required = true, value_name = "FILE.toml")]
    pub files: Vec<PathBuf>,
    /// What wins over the files.
    #[command(flatten)]
    pub settings: Settings,
    /// Loosens limits on time, CPU and rate so many times, for machines that are shared
    #[arg(long, value_name = "F", default_value = "1", value_parser = factor)]
    pub limits_factor: f64,
    /// How they are watched.
    #[command(flatten)]
    pub watch: WatchArgs,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor >= 1.0);
    factor.ok_or_else(|| "a factor is a number of at least 1".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
