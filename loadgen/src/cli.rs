//! The command line: what people see of a run. It reads flags and files into a [`Plan`](crate::Plan), watches the run,
//! and turns its [`Outcome`](crate::Outcome) into a report, a table, a plot and a verdict.
//!
//! | room | subject |
//! |---|---|
//! | `args`, `settings`, `words`, `target` | what was said, and the plan that comes of it |
//! | `measure`, `progress`, `server` | a run from start to report |
//! | `report`, `table`, `plot`, `hgrm`, `machine`, `units` | what it leaves behind |
//! | `limits`, `sla`, `ramp` | what it is held to |

mod args;
mod error;
mod hgrm;
mod limits;
mod machine;
mod measure;
mod plot;
mod progress;
mod ramp;
mod report;
mod server;
mod settings;
mod sla;
mod table;
mod target;
mod units;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use hdrhistogram::Histogram;

use self::{
    args::{Cli, Command, PlotArgs, RunArgs, SlaArgs, WatchArgs},
    error::CliError,
    limits::Verdict,
    measure::{Interrupt, Watch, measure},
    report::Report,
    settings::Settings,
    words::Word,
};
use crate::plan::{Pacing, Scenario};

/// The command `loadgen`. Exit code 0 for a pass, 1 where a check or a limit fails, 2 where the run could not be made,
/// and 128 plus the signal's number for a pass that was interrupted, so that no script takes it for a whole one.
#[must_use]
pub fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(CliError::Usage(error)) => {
            // Help and version are no errors, and go to stdout.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
        Err(error) => {
            eprintln!("loadgen: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, CliError> {
    let Cli { command, run } = Cli::try_parse()?;
    match command {
        None => run_scenario(run),
        Some(Command::Plot(args)) => plot_reports(&args),
        Some(Command::Sla(args)) => run_slas(*args),
    }
}

fn run_scenario(args: RunArgs) -> Result<ExitCode, CliError> {
    let Some(scenario) = &args.scenario else {
        return Err(CliError::Conflict("no scenario is named; see loadgen --help".into()));
    };
    let mut settings = args.settings.over(scenario_settings(scenario)?);
    if let Some(path) = &args.sla {
        settings.limits = settings.limits.over(Settings::read(path)?.limits);
    }
    let plan = settings.plan()?;
    let plot = args.plot.unwrap_or_else(|| PathBuf::from(format!("loadgen-{}.svg", plan.scenario.word())));
    let files = Files { json: args.json, hdr: args.hdr, plot };
    files.can_be_written()?;
    let watch = watch(args.watch)?;
    let (limits, allowed) = (&settings.limits, settings.allowed());
    let (report, latency_ns, verdict) = if args.ramp {
        let Pacing::Open { rate_per_s, .. } = plan.pacing else {
            return Err(CliError::Conflict("--ramp needs an open loop: leave `closed` out of the file".into()));
        };
        if limits.is_empty() {
            return Err(CliError::Conflict("--ramp needs limits: --sla FILE, or --p99 5ms and the like".into()));
        }
        ramp::ramp(&plan, rate_per_s, limits, &allowed, &watch)?
    } else {
        let (report, latency_ns) = measure(&plan, &watch)?;
        let verdict = limits.verdict(&allowed, &report);
        (report, latency_ns, verdict)
    };
    files.write(&report, &latency_ns, &verdict)?;
    Ok(exit_code(verdict.passed(), &watch))
}

/// Where a run is to leave what it found.
struct Files {
    json: Option<PathBuf>,
    hdr: Option<PathBuf>,
    plot: PathBuf,
}

impl Files {
    /// Whether their directories are there, before a run is made for them.
    fn can_be_written(&self) -> Result<(), CliError> {
        let files = [self.json.as_ref(), self.hdr.as_ref(), Some(&self.plot)];
        files.into_iter().flatten().try_for_each(|path| {
            let directory = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
            fs::read_dir(directory).map(drop).map_err(CliError::file(path))
        })
    }

    /// Writes them, and prints the table and the verdict.
    fn write(&self, report: &Report, latency_ns: &Histogram<u64>, verdict: &Verdict) -> Result<(), CliError> {
        let mut face = table::table(report);
        if report.samples() > 0 {
            write(&self.plot, &plot::svg(&[(report.scenario.clone(), report.clone())])?)?;
            face += &format!("plot: {}\n", self.plot.display());
        }
        face += &format!("{verdict}\n");
        if let Some(path) = &self.hdr {
            write(path, &hgrm::hgrm(latency_ns))?;
        }
        match &self.json {
            // Whoever reads the JSON from stdout wants nothing else there.
            Some(path) if path == Path::new(STDOUT) => {
                print!("{}", report.to_json());
                eprint!("{face}");
            }
            Some(path) => {
                write(path, &report.to_json())?;
                print!("{face}");
            }
            None => print!("{face}"),
        }
        Ok(())
    }
}

/// The path that stands for stdout.
const STDOUT: &str = "-";

/// What the positional argument says: a scenario's word, or a file.
fn scenario_settings(scenario: &str) -> Result<Settings, CliError> {
    let path = Path::new(scenario);
    if scenario.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
        return Settings::read(path);
    }
    let word = Scenario::of(scenario).map_err(CliError::Scenario)?;
    Ok(Settings { scenario: Some(word), ..Settings::default() })
}

fn run_slas(args: SlaArgs) -> Result<ExitCode, CliError> {
    let watch = watch(args.watch)?;
    let held = sla::sla(&args.files, &args.settings, args.limits_factor, &watch)?;
    Ok(exit_code(held, &watch))
}

fn plot_reports(args: &PlotArgs) -> Result<ExitCode, CliError> {
    let named = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Report::read(path).map(|report| (name, report))
    };
    let reports: Vec<_> = args.reports.iter().map(named).collect::<Result<_, _>>()?;
    write(&args.out, &plot::svg(&reports)?)?;
    println!("plot: {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

fn watch(args: WatchArgs) -> Result<Watch, CliError> {
    let interrupt = Interrupt::listen().map_err(CliError::Signals)?;
    Ok(Watch { quiet: args.quiet, server_pids: args.server_pid, postgres_pid: args.postgres_pid, interrupt })
}

fn exit_code(passed: bool, watch: &Watch) -> ExitCode {
    match watch.interrupt.signal() {
        _ if !passed => ExitCode::from(1),
        Some(signal) => ExitCode::from(128 + signal),
        None => ExitCode::SUCCESS,
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(CliError::file(path))
}
