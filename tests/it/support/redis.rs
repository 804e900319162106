//! A real Redis server for a test. Without an installed one, the test reports that it was skipped.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server on a port of its own, which ends with the test.
pub(crate) struct TestRedis {
    port: u16,
    process: Child,
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        self.kill();
    }
}

impl TestRedis {
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        Self::start_at(port, options)
    }

    #[expect(clippy::print_stderr, reason = "says why the test was skipped")]
    fn start_at(port: u16, options: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
        ]);
        command.arg(port.to_string()).args(options);
        command.current_dir(std::env::temp_dir());
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let Ok(process) = process else {
            eprintln!("skipped: no redis-server is installed here");
            return None;
        };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { port, process })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Stops the server without closing its connections, or lets it go on.
    pub(crate) fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill")
            .args([signal, &self.process.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}
