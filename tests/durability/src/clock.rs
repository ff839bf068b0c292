//! Clocks that are wrong: a library between a program and the system that shifts the time of day, not the monotonic clock.

use std::{fs, path::PathBuf, process::Command, time::SystemTime};

use crate::Failed;

/// Where Debian's package puts it, below a directory for the machine's architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// Settings with which a program's clock is so many seconds ahead. None for a clock that is right.
pub fn settings(ahead_s: i64) -> Result<Vec<(String, String)>, Failed> {
    if ahead_s == 0 {
        return Ok(Vec::new());
    }
    let settings = [
        ("LD_PRELOAD", library()?.display().to_string()),
        ("FAKETIME", format!("{ahead_s:+}s")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
    // A library that does nothing would prove nothing.
    let seen_s = time_with(&settings)? - now_s();
    if (seen_s - ahead_s).abs() > 60 {
        return Err(Failed(format!("a clock that was to be {ahead_s} s ahead is {seen_s} s ahead")));
    }
    Ok(settings)
}

fn library() -> Result<PathBuf, Failed> {
    let missing = || Failed("clocks cannot be set apart: install the package faketime".to_owned());
    let directories = fs::read_dir("/usr/lib").map_err(|_| missing())?;
    let found = directories.flatten().map(|directory| directory.path().join(LIBRARY)).find(|library| library.exists());
    found.ok_or_else(missing)
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// The time of day for a program with these settings.
fn time_with(settings: &[(String, String)]) -> Result<i64, Failed> {
    let failed = |why: String| Failed(format!("date says nothing: {why}"));
    let said = Command::new("date").arg("+%s").envs(settings.iter().cloned()).output();
    let said = said.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&said.stdout);
    text.trim().parse().map_err(|_| failed(text.to_string()))
}
