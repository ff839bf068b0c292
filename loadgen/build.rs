//! Tells the load generator which commit it is built from, for its reports. Without git, or outside of a checkout, the
//! commit is `unknown`.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo::rustc-env=LOADGEN_COMMIT={}", commit().unwrap_or_else(|| "unknown".into()));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    // HEAD changes with the branch, its log with every commit.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--", "."])?.is_empty();
    Some(if changed { format!("{commit}-dirty") } else { commit })
}

/// What git prints, without the end of the line; `None` where it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
