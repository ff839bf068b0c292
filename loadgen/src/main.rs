//! The command `loadgen`: see [`loadgen::cli`].

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    loadgen::cli::main()
}
