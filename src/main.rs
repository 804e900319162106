//! The `toolcrib` program: arguments in, an exit code out.

use std::process::ExitCode;

use toolcrib::confine::confine_process;
use toolcrib::environment::{Environment, conceal, refuse_inspection};
use toolcrib::{cli, init};

/// Rows are allocated on one thread and freed on another, which costs the system's allocator a fifth of a cached call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let starts_programs = cli::starts_programs(std::env::args_os());
    let environment = if starts_programs {
        conceal()
    } else {
        refuse_inspection();
        Environment::of_this_process()
    };
    if let Some(code) = init::stand_in(&environment) {
        return code;
    }
    if starts_programs {
        confine_process();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(cli::run(std::env::args_os(), environment));
    // A blocking function that does not end must not keep the process from ending.
    runtime.shutdown_background();
    code
}
