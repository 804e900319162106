//! The `toolcrib` program: arguments in, an exit code out.

use std::process::ExitCode;
use std::time::Duration;

use toolcrib::cli;
use toolcrib::environment::{Environment, conceal, refuse_inspection};
use toolcrib::runtime::confine_process;
use toolcrib::runtime::init;

/// Rows are allocated on one thread and freed on another, which costs the system's allocator a
/// fifth of a cached call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Settings of the allocator, which it reads before `main`. Freed memory stays for so many
/// milliseconds before it is given back to the system. In the second that is mimalloc's default, a
/// few large requests leave more behind than they use.
const ALLOCATOR_SETTINGS: [(&str, &str); 1] = [("MIMALLOC_PURGE_DELAY", "10")];
/// How often freed memory is given back to the system while nothing is freed.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);
/// More than any object that mimalloc puts on a page with others (512 KiB).
const LARGE_BLOCK: usize = 1 << 20;

/// Has freed memory given back to the system while the service is idle.
///
/// mimalloc has no thread of its own: it gives memory back when a page is freed some time later.
/// After a burst nothing is freed, and the memory would stay. A large block is a page of its own,
/// so its end is what mimalloc waits for. The block is never written to, so it takes no memory.
async fn release_freed_memory() {
    let mut tick = tokio::time::interval(RELEASE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BLOCK)));
    }
}

fn main() -> ExitCode {
    if let Some(code) = cli::run_as_script() {
        return code;
    }
    let starts_programs = cli::starts_programs(std::env::args_os());
    let environment = if starts_programs {
        conceal(&ALLOCATOR_SETTINGS)
    } else {
        refuse_inspection();
        Environment::from_process()
    };
    if let Some(code) = init::run_as_init(&environment) {
        return code;
    }
    if starts_programs {
        // The ledger's files get the same umask: only the service's user may read them.
        confine_process();
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // tokio reads this variable only from the process's environment, from which `conceal` may have
    // removed it.
    let threads = environment
        .get_text("TOKIO_WORKER_THREADS")
        .and_then(|threads| threads.parse().ok());
    if let Some(threads) = threads.filter(|threads| *threads > 0) {
        runtime.worker_threads(threads);
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::FAILURE;
        }
    };
    runtime.spawn(release_freed_memory());
    let code = cli::run(&runtime, std::env::args_os().collect(), environment);
    // A blocking function that does not end must not keep the process from ending.
    runtime.shutdown_background();
    code
}
