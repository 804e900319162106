//! Helpers for the tests of several kinds: a Python interpreter, and a clock that runs fast.

use std::pin::pin;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

static PYTHON: OnceLock<Option<String>> = OnceLock::new();

/// The file of the Python interpreter on `PATH`; `None` if there is none. Python reports its own
/// path, once. The file on `PATH` may be a script that searches for a Python, and that takes longer
/// than the start of an interpreter.
pub(crate) fn python() -> Option<&'static str> {
    let find = || {
        let output = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .ok()?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
            .filter(|file| !file.is_empty())
    };
    PYTHON.get_or_init(find).as_deref()
}

/// Awaits `work` while tokio's clock runs `speed` times as fast as real time. Other processes run
/// in real time. Needs a single-threaded runtime whose clock is not paused.
pub(crate) async fn with_fast_clock<T>(speed: u32, work: impl Future<Output = T>) -> T {
    const TICK: Duration = Duration::from_millis(5);
    tokio::time::pause();
    let mut work = pin!(work);
    loop {
        // A paused clock advances by itself when the runtime is idle, but not while a blocking task
        // runs.
        let tick = tokio::task::spawn_blocking(|| std::thread::sleep(TICK));
        let ended = tokio::select! {
            ended = &mut work => Some(ended),
            _ = tick => None,
        };
        if let Some(ended) = ended {
            tokio::time::resume();
            return ended;
        }
        tokio::time::advance(TICK * speed).await;
    }
}

#[tokio::test]
async fn fast_clock_runs_faster_than_real_time() {
    let started = (std::time::Instant::now(), tokio::time::Instant::now());
    with_fast_clock(100, tokio::time::sleep(Duration::from_secs(20))).await;
    assert!(started.1.elapsed() >= Duration::from_secs(20));
    assert!(
        started.0.elapsed() >= Duration::from_millis(150),
        "it does not jump"
    );
    assert!(started.0.elapsed() < Duration::from_secs(20));
}
