//! The `toolcrib` program: arguments in, an exit code out.

use std::process::ExitCode;

/// Rows are allocated on one thread and freed on another, which costs the system's allocator a fifth of a cached call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = toolcrib::init::stand_in() {
        return code;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(toolcrib::cli::run(std::env::args_os()));
    // A blocking function that does not end must not keep the process from ending.
    runtime.shutdown_background();
    code
}
