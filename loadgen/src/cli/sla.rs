//! `loadgen sla`: files that name a scenario and its limits, each run and held to them.

use std::path::{Path, PathBuf};

use super::{
    error::CliError,
    measure::{Watch, measure},
    settings::Settings,
    table,
    words::Allowed,
};
use crate::Plan;

/// An SLA, read and checked.
struct Sla {
    path: PathBuf,
    plan: Plan,
    settings: Settings,
}

/// Runs each file's scenario, with `flags` over it and its limits loosened `limits_factor` times, and prints what came
/// of it. Returns whether all held; an interruption ends it with what was measured so far.
///
/// # Errors
///
/// [`CliError`]; every file is read before the first one runs.
pub fn sla(files: &[PathBuf], flags: &Settings, limits_factor: f64, watch: &Watch) -> Result<bool, CliError> {
    let slas: Vec<_> = files.iter().map(|path| Sla::read(path, flags)).collect::<Result<_, _>>()?;
    let mut broken = Vec::new();
    for sla in &slas {
        println!("== {}", sla.path.display());
        let (report, _) = measure(&sla.plan, watch)?;
        // Loss, duplication, order and corruption are never allowed here.
        let limits = sla.settings.limits.clone().loosened(limits_factor);
        let verdict = limits.verdict(&Allowed::default(), &report);
        println!("{}{verdict}\n", table::table(&report));
        if !verdict.passed() {
            broken.push(sla.path.display().to_string());
        }
        if watch.interrupt.signal().is_some() {
            break;
        }
    }
    match broken.as_slice() {
        [] => println!("PASS: {} of {}", files.len(), files.len()),
        _ => println!("FAIL: {} of {}: {}", broken.len(), files.len(), broken.join(", ")),
    }
    Ok(broken.is_empty())
}

impl Sla {
    fn read(path: &Path, flags: &Settings) -> Result<Self, CliError> {
        let wrong = |why: &str| CliError::Content { path: path.to_owned(), why: why.into() };
        let file = Settings::read(path)?;
        if file.limits.is_empty() {
            return Err(wrong("it has no limits; write some under [limits], such as p99 = \"5ms\""));
        }
        let settings = flags.clone().over(file);
        if settings.allow.is_some() {
            return Err(wrong(
                "`allow` (--allow) does not go with an SLA: its checks are strict, but for limits.errors",
            ));
        }
        let plan = settings.plan().map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { path: path.to_owned(), plan, settings })
    }
}
