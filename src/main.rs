//! The `toolcrib` program: arguments in, an exit code out.

use std::process::ExitCode;
use std::time::Duration;

use toolcrib::confine::confine_process;
use toolcrib::environment::{Environment, conceal, refuse_inspection};
use toolcrib::{cli, init};

/// Rows are allocated on one thread and freed on another, which costs the system's allocator a fifth of a cached call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Settings of the allocator, which it reads before `main`. Freed memory stays for so many milliseconds before it is given
/// back to the system. In the second that is mimalloc's default, a few large requests leave more behind than they use.
const SETTINGS: [(&str, &str); 1] = [("MIMALLOC_PURGE_DELAY", "10")];
/// How often freed memory is given back to the system while nothing is freed.
const GIVE_BACK: Duration = Duration::from_secs(1);
/// More than any object that mimalloc puts on a page with others (512 KiB).
const OWN_PAGE: usize = 1 << 20;

/// Has freed memory given back to the system while the service is idle.
///
/// mimalloc has no thread of its own: it gives memory back when a page is freed some time later. After a burst nothing
/// is freed, and the memory would stay. A large block is a page of its own, so its end is what mimalloc waits for. The
/// block is never written to, so it takes no memory.
async fn give_back() {
    let mut tick = tokio::time::interval(GIVE_BACK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        drop(std::hint::black_box(Vec::<u8>::with_capacity(OWN_PAGE)));
    }
}

fn main() -> ExitCode {
    let starts_programs = cli::starts_programs(std::env::args_os());
    let environment = if starts_programs {
        conceal(&SETTINGS)
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
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // tokio looks into the process's environment, which is empty by now.
    let threads = environment.text("TOKIO_WORKER_THREADS").and_then(|threads| threads.parse().ok());
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
    runtime.spawn(give_back());
    let code = runtime.block_on(cli::run(std::env::args_os(), environment));
    // A blocking function that does not end must not keep the process from ending.
    runtime.shutdown_background();
    code
}
