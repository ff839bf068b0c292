//! The broker: one binary, one pinned executor per core.
//!
//! `boot` reads settings and checks the machine, `serve` puts the roles on their cores. `auth` has what tokens are judged
//! with, and `jwks` fetches the keys for that.

mod auth;
mod boot;
mod checks;
mod cli;
mod data_dir;
mod identity;
mod jwks;
mod log;
mod serve;
mod settings;
mod signals;

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    boot::run(serve::run).into()
}
