//! Takes the environment out of the process's memory as the kernel shows it.
//!
//! `/proc/PID/environ` shows what the process was started with, whatever it does to its variables later. So the
//! program starts itself again: a copy of the environment goes along in a memfd, and the new start has an empty one.
//! The process id, the arguments and the open files stay.

use std::ffi::OsStr;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::Environment;

/// Variables that something in the program reads by itself and that cannot be handed to it in another way, so that the
/// new start keeps them. None is a place for a secret: they are paths, names, numbers and switches.
#[cfg(target_os = "linux")]
const KEPT: [&str; 16] = [
    // The dynamic loader, while the program starts again: without them it may not start, or with other libraries.
    "GLIBC_TUNABLES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    // The standard library, for each thread that is given no size of its stack.
    "RUST_MIN_STACK",
    // rustls-native-certs, below the clients of HTTP and PostgreSQL: certificates of authorities.
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    // SQLite's `unixTempFileDir`: files of large sorts.
    "SQLITE_TMPDIR",
    "TMPDIR",
    // libc's `tzset` (SQLite's `localtime`) and jiff: time zones.
    "TZ",
    "TZDIR",
    // The resolver of libc (`res_init`, `res_query`).
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    // sqlx: the file with passwords of PostgreSQL. Its other variables are in `tools/sql/postgres/defaults.rs`.
    "PGPASSFILE",
    // libfaketime, which tests load to set the clock.
    "DONT_FAKE_MONOTONIC",
    "NO_FAKE_STAT",
];

/// How names begin of which all are kept, as above: the allocator's settings, which it reads before `main`, and
/// libfaketime's.
#[cfg(target_os = "linux")]
const KEPT_PREFIXES: [&str; 2] = ["MIMALLOC_", "FAKETIME"];

/// For the beginning of `main`, before any thread: the variables of the process, which its environment has no more
/// afterwards. Programs that it starts cannot read them in `/proc` then. To that end the program is started again in
/// the same process; a program that calls this function is started again from its beginning, so nothing that should
/// happen once may come before it.
///
/// A few variables stay in the environment, because libraries read them themselves: those of the dynamic loader, paths
/// of temporary files and of certificates, the time zone, settings of the resolver and of the allocator. Whatever else
/// a library of the program reads there (tokio: `TOKIO_WORKER_THREADS`) has to be given to it by the program.
///
/// The new start also has `settings`, names with values, for libraries that read them before `main`. Where the environment
/// has such a name, its own value counts. Programs that tools start do not get them.
///
/// Where the program cannot be started again (an old kernel, a filter of system calls, no `/proc`) it goes on as it is,
/// with a warning on standard error. Outside Linux nothing is hidden, and `settings` have no effect. In any case see
/// [`refuse_inspection`].
pub fn conceal(settings: &[(&str, &str)]) -> Environment {
    refuse_inspection();
    #[cfg(target_os = "linux")]
    {
        linux::conceal(settings)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = settings;
        Environment::of_this_process()
    }
}

/// Forbids core dumps of this process and, on Linux, other processes of the same user to look into its memory, its
/// environment and its open files (`PR_SET_DUMPABLE`, see prctl(2)). A debugger needs root then. Root may look all the
/// same.
pub fn refuse_inspection() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // Lowering a limit of one's own is always allowed.
    let _ = setrlimit(Resource::Core, none);
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// What a child must inherit so that its [`conceal`] finds these variables; `None` when they are in the environment of
/// this process, which it inherits. To be held until the child runs.
///
/// # Errors
/// As the system says.
#[cfg(target_os = "linux")]
pub(crate) fn pass_to_child(environment: &Environment) -> io::Result<Option<OwnedFd>> {
    environment.is_concealed.then(|| linux::write_copy(environment)).transpose()
}

/// Nothing is concealed here.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pass_to_child(_: &Environment) -> io::Result<Option<std::os::fd::OwnedFd>> {
    Ok(None)
}

#[cfg(target_os = "linux")]
fn is_kept(name: &OsStr) -> bool {
    let is_kept = |name: &str| KEPT.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    name.to_str().is_some_and(is_kept)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{CString, OsString};
    use std::fs::{self, File};
    use std::io::{self, Read as _, Seek as _, Write as _};
    use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::Errno;

    use super::is_kept;
    use crate::confine;
    use crate::environment::Environment;

    /// The name of the memfd.
    const NAME: &str = "toolcrib-environment";
    /// How `/proc/self/fd` shows it.
    const LINK: &str = "/memfd:toolcrib-environment (deleted)";
    /// This program, also when its file was moved or replaced meanwhile.
    const PROGRAM: &str = "/proc/self/exe";

    pub(super) fn conceal(settings: &[(&str, &str)]) -> Environment {
        if let Some(environment) = take_copy() {
            restore_name();
            return environment;
        }
        let environment = Environment::of_this_process();
        // Nothing is there to be hidden. So a second start never leads to a third.
        if environment.iter().all(|(name, _)| is_kept(name)) {
            return environment;
        }
        let error = start_again(&environment, settings);
        let _ = writeln!(
            io::stderr(),
            "toolcrib: the environment stays visible to programs that tools start, since the program cannot be \
             started again without it: {error}"
        );
        environment
    }

    /// Starts the program again; returns only when that fails.
    fn start_again(environment: &Environment, settings: &[(&str, &str)]) -> io::Error {
        let copy = match write_copy(environment) {
            Ok(copy) => copy,
            Err(error) => return error,
        };
        // The new start must be able to find it.
        if !is_copy(copy.as_raw_fd()) {
            return io::Error::other("/proc is not there");
        }
        let mut arguments = std::env::args_os();
        let mut command = Command::new(PROGRAM);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        let kept = environment.iter().filter(|(name, _)| is_kept(name));
        command.args(arguments).env_clear().envs(settings.iter().copied()).envs(kept).exec()
    }

    /// A memfd that a new program inherits, with `NAME=VALUE` and a zero byte for each variable.
    pub(super) fn write_copy(environment: &Environment) -> io::Result<OwnedFd> {
        // Kernels before 6.3 do not know the flag, and some later ones insist on it.
        let copy = match memfd_create(NAME, MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(NAME, MemfdFlags::empty()),
            created => created,
        }?;
        let mut file = File::from(copy);
        let mut bytes = Vec::new();
        for (name, value) in environment.iter() {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        }
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file.into())
    }

    /// What the start before has left for this one. It is closed, so that no child inherits it.
    fn take_copy() -> Option<Environment> {
        let entries = fs::read_dir("/proc/self/fd").ok()?;
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        let copies: Vec<RawFd> = numbers.filter(|number| is_copy(*number)).collect();
        let copies: Vec<OwnedFd> = copies.into_iter().filter_map(confine::take_inherited).collect();
        let mut bytes = Vec::new();
        let mut file = File::from(copies.into_iter().next()?);
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).ok()?;
        Some(parse(&bytes))
    }

    fn is_copy(number: RawFd) -> bool {
        fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|link| link.as_os_str() == LINK)
    }

    fn parse(bytes: &[u8]) -> Environment {
        let entries = bytes.split(|byte| *byte == 0).filter_map(|entry| {
            // As the standard library has it, a name may begin with `=`.
            let at = entry.iter().skip(1).position(|byte| *byte == b'=')? + 1;
            Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
        });
        Environment { is_concealed: true, ..entries.collect() }
    }

    /// The kernel names a process after the file that it was started from, which was a link: `ps` would show `exe`.
    fn restore_name() {
        let name = std::env::current_exe().ok().and_then(|program| CString::new(program.file_name()?.as_bytes()).ok());
        if let Some(name) = name {
            let _ = rustix::thread::set_name(&name);
        }
    }

    #[cfg(test)]
    mod tests {
        use std::ffi::OsStr;

        use super::*;

        #[test]
        fn a_copy_reads_as_it_was_written() {
            let odd = OsString::from_vec(vec![0xff, b'=', b'\n']);
            let variables = [("A", OsString::from("1")), ("EMPTY", OsString::new()), ("B", odd), ("C", "x=y".into())];
            let environment: Environment = variables.into_iter().collect();
            let copy = write_copy(&environment).unwrap();
            assert!(is_copy(copy.as_raw_fd()));
            let mut bytes = Vec::new();
            File::from(copy).read_to_end(&mut bytes).unwrap();
            let read = parse(&bytes);
            assert!(read.iter().eq(environment.iter()));
            assert!(read.is_concealed && !environment.is_concealed);
        }

        #[test]
        fn names_that_may_be_secrets_are_not_kept() {
            for (name, expected) in [
                ("TMPDIR", true),
                ("MIMALLOC_PURGE_DELAY", true),
                ("PGPASSFILE", true),
                ("PGPASSWORD", false),
                ("PGSSLKEY", false),
                ("PGHOST", false),
                ("HOME", false),
                ("PATH", false),
                ("HTTPS_PROXY", false),
                ("TOOLCRIB_KEY", false),
                ("MIMALLOC", false),
            ] {
                assert_eq!(is_kept(OsStr::new(name)), expected, "{name}");
            }
        }
    }
}
