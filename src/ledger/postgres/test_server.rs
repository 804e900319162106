//! A real PostgreSQL that the tests start themselves. Without an installed PostgreSQL they report
//! that they were skipped.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

/// How long the server may take to start, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The server that concurrent tests share.
static SERVER: Mutex<Weak<TestServer>> = Mutex::new(Weak::new());

/// A server for the tests, without a password. It is removed with the tests.
pub(crate) struct TestServer {
    folder: TempDir,
    pub(crate) port: u16,
    process: Mutex<Child>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The folder of PostgreSQL's programs.
fn find_program_folder() -> Option<PathBuf> {
    let path = std::process::Command::new("sh")
        .args(["-c", "command -v initdb"])
        .output()
        .ok()?;
    let path = String::from_utf8(path.stdout).ok()?;
    // Debian's `initdb` may be a link or a wrapper; `postgres` itself is in a folder of its
    // version.
    let installed = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let installed = installed
        .map(|version| version.path().join("bin"))
        .find(|bin| bin.join("postgres").exists());
    installed.or_else(|| {
        let bin = Path::new(path.trim())
            .canonicalize()
            .ok()?
            .parent()?
            .to_owned();
        bin.join("postgres").exists().then_some(bin)
    })
}

impl TestServer {
    pub(crate) fn shared() -> Option<Arc<Self>> {
        let mut known = SERVER.lock();
        if let Some(server) = known.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start()?);
        *known = Arc::downgrade(&server);
        Some(server)
    }

    /// The program, run as a user other than root, because PostgreSQL refuses root.
    fn program(bin: &Path, name: &str) -> Command {
        let program = bin.join(name);
        if !rustix::process::getuid().is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
            .arg(program);
        command
    }

    pub(crate) fn start() -> Option<Self> {
        let Some(bin) = find_program_folder() else {
            eprintln!("skipped: no PostgreSQL is installed here");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let owned = folder.path().join("own");
        std::fs::create_dir(&owned).unwrap();
        if rustix::process::getuid().is_root() {
            let owner = Command::new("chown")
                .args(["nobody:nogroup"])
                .arg(&owned)
                .status()
                .unwrap();
            assert!(owner.success());
        }
        let initdb = Self::program(&bin, "initdb")
            .args([
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
                "-D",
            ])
            .arg(owned.join("data"))
            .current_dir(&owned)
            .output()
            .unwrap();
        assert!(
            initdb.status.success(),
            "{}",
            String::from_utf8_lossy(&initdb.stderr)
        );
        // The rule for one role that needs a password.
        let rules = "host all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        let hba = owned.join("data/pg_hba.conf");
        let tee = Command::new("tee")
            .arg(&hba)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        use std::io::Write;
        let mut tee = tee.unwrap();
        tee.stdin
            .take()
            .unwrap()
            .write_all(rules.as_bytes())
            .unwrap();
        assert!(tee.wait().unwrap().success());
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let process = Mutex::new(Self::spawn_server(&bin, &owned, port));
        let server = Self {
            folder,
            port,
            process,
        };
        server.wait_until_ready();
        Some(server)
    }

    fn spawn_server(bin: &Path, owned: &Path, port: u16) -> Child {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(owned.join("log"))
            .unwrap();
        let settings = [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "shared_buffers=16MB",
            "max_connections=60",
        ];
        Self::program(bin, "postgres")
            .arg("-D")
            .arg(owned.join("data"))
            .args(["-p", &port.to_string(), "-k"])
            .arg(owned)
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(owned)
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    pub(crate) fn restart(&self) {
        let bin = find_program_folder().unwrap();
        *self.process.lock() = Self::spawn_server(&bin, &self.folder.path().join("own"), self.port);
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let end = Instant::now() + START_TIMEOUT;
        let ready = || {
            let bin = find_program_folder().unwrap();
            let is_ready = Command::new(bin.join("pg_isready"))
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status();
            is_ready.unwrap().success()
        };
        while !ready() {
            let log =
                || std::fs::read_to_string(self.folder.path().join("own/log")).unwrap_or_default();
            assert!(Instant::now() < end, "the server does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server as `pg_ctl stop -m fast` does: it disconnects all clients.
    pub(crate) fn stop(&self) {
        let mut process = self.process.lock();
        if let Some(pid) = rustix::process::Pid::from_raw(process.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = process.wait();
    }

    /// The URL of a database of this server.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub(crate) async fn create_database(&self, name: &str) {
        let mut admin = PgConnection::connect(&self.url("postgres")).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("create database {name}")))
            .execute(&mut admin)
            .await
            .unwrap();
    }

    /// Creates a database for a ledger. Returns its URL.
    pub(crate) async fn create_ledger_database(&self) -> String {
        let name = format!("ledger_{}", uuid::Uuid::now_v7().simple());
        self.create_database(&name).await;
        self.url(&name)
    }
}
