//! Removes the environment from the memory of the process that the kernel shows to others.
//!
//! `/proc/PID/environ` shows the variables with which the process was started, even if it changes
//! them later. So the program starts itself again with an empty environment. A copy of the
//! variables is passed on in a memfd. The process id, the arguments and the open files stay the
//! same.

use std::ffi::OsStr;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::Environment;

/// Variables that some library reads by itself and that cannot be passed to it in another way. The
/// new start keeps them. They contain paths, names, numbers and switches, never secrets.
#[cfg(target_os = "linux")]
const KEPT_VARIABLES: [&str; 16] = [
    // The dynamic loader, when the program starts again. Without them it may fail to start, or load
    // other libraries.
    "GLIBC_TUNABLES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    // The standard library, for each thread whose stack size is not set explicitly.
    "RUST_MIN_STACK",
    // rustls-native-certs, for the HTTP and PostgreSQL clients: certificates of authorities.
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
    // sqlx: the file with passwords of PostgreSQL. Its other variables are in
    // `kinds/sql/postgres/address.rs`.
    "PGPASSFILE",
    // libfaketime, which tests load to set the clock.
    "DONT_FAKE_MONOTONIC",
    "NO_FAKE_STAT",
];

/// Prefixes of variables that are all kept for the same reason: settings of the allocator, which it
/// reads before `main`, and of libfaketime.
#[cfg(target_os = "linux")]
const KEPT_PREFIXES: [&str; 2] = ["MIMALLOC_", "FAKETIME"];

/// Returns the variables of the process, and removes them from its environment. Call it at the
/// beginning of `main`, before any thread starts. Programs that this process starts later cannot
/// read the variables in `/proc`.
///
/// To do that, the function starts the program again in the same process, from its beginning. So
/// nothing that must happen only once may come before this call.
///
/// A few variables stay in the environment, because libraries read them themselves: those of the
/// dynamic loader, paths of temporary files and of certificates, the time zone, settings of the
/// resolver and of the allocator. The program must pass any other variable to the library that
/// reads it (tokio: `TOKIO_WORKER_THREADS`).
///
/// The new start also gets `settings`, pairs of name and value, for libraries that read them before
/// `main`. A variable of the environment takes precedence over a setting with the same name.
/// Programs that tools start do not get the settings.
///
/// The program may be unable to start again (an old kernel, a filter of system calls, no `/proc`).
/// Then it continues unchanged, with a warning on standard error. Outside Linux nothing is hidden,
/// and `settings` have no effect. In any case, [`refuse_inspection`] takes effect.
pub fn conceal(settings: &[(&str, &str)]) -> Environment {
    refuse_inspection();
    #[cfg(target_os = "linux")]
    {
        linux::conceal(settings)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = settings;
        Environment::from_process()
    }
}

/// Disables core dumps of this process. On Linux, it also prevents other processes of the same user
/// from reading its memory, its environment and its open files (`PR_SET_DUMPABLE`, see prctl(2)). A
/// debugger then needs root. Root itself can still read everything.
pub fn refuse_inspection() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A process may always lower its own limits.
    let _ = setrlimit(Resource::Core, none);
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Makes the file that a child must inherit so that its [`conceal`] finds these variables. `None`
/// if they are in the environment of this process, because the child inherits that. Hold the file
/// until the child runs.
///
/// # Errors
/// The error of the system.
#[cfg(target_os = "linux")]
pub(crate) fn pass_to_child(environment: &Environment) -> io::Result<Option<OwnedFd>> {
    environment
        .is_concealed
        .then(|| linux::write_copy(environment))
        .transpose()
}

/// Returns `None`, because this platform conceals nothing.
///
/// # Errors
/// Never returns an error.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pass_to_child(_: &Environment) -> io::Result<Option<std::os::fd::OwnedFd>> {
    Ok(None)
}

#[cfg(target_os = "linux")]
fn is_kept(name: &OsStr) -> bool {
    let is_kept = |name: &str| {
        KEPT_VARIABLES.contains(&name)
            || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
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
    use std::path::Path;
    use std::process::Command;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::Errno;

    use super::is_kept;
    use crate::environment::Environment;

    /// The name of the memfd.
    const MEMFD_NAME: &str = "toolcrib-environment";
    /// The name of its link in `/proc/self/fd`.
    const MEMFD_LINK: &str = "/memfd:toolcrib-environment (deleted)";
    /// This program, even if its file was moved or replaced since the start.
    const SELF_EXE: &str = "/proc/self/exe";

    pub(super) fn conceal(settings: &[(&str, &str)]) -> Environment {
        if let Some(environment) = take_copy() {
            restore_name();
            return environment;
        }
        let environment = Environment::from_process();
        // There is nothing to hide. This also prevents a third start: the second one has only kept
        // variables.
        if environment.iter().all(|(name, _)| is_kept(name)) {
            return environment;
        }
        let error = restart_program(&environment, settings);
        let _ = writeln!(
            io::stderr(),
            "toolcrib: the environment stays visible to programs that tools start, since the program cannot be \
             started again without it: {error}"
        );
        environment
    }

    /// Starts the program again. It returns only if that fails.
    fn restart_program(environment: &Environment, settings: &[(&str, &str)]) -> io::Error {
        let copy = match write_copy(environment) {
            Ok(copy) => copy,
            Err(error) => return error,
        };
        // The new start must be able to find the copy.
        if !is_copy(copy.as_raw_fd()) {
            return io::Error::other("/proc is not there");
        }
        let mut arguments = std::env::args_os();
        let mut command = Command::new(SELF_EXE);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        let kept_variables = environment.iter().filter(|(name, _)| is_kept(name));
        command
            .args(arguments)
            .env_clear()
            .envs(settings.iter().copied())
            .envs(kept_variables)
            .exec()
    }

    /// Makes a memfd that the new program inherits. It contains `NAME=VALUE` and a zero byte for
    /// each variable.
    pub(super) fn write_copy(environment: &Environment) -> io::Result<OwnedFd> {
        // Kernels before 6.3 do not know the flag. Some later kernels require it.
        let copy = match memfd_create(MEMFD_NAME, MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(MEMFD_NAME, MemfdFlags::empty()),
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

    /// Reads the copy that the previous start passed on, and closes it so that no child inherits
    /// it.
    fn take_copy() -> Option<Environment> {
        let copies = toolcrib_process::take_inherited_files(Path::new(MEMFD_LINK));
        let mut bytes = Vec::new();
        let mut file = File::from(copies.into_iter().next()?);
        file.rewind()
            .and_then(|()| file.read_to_end(&mut bytes))
            .ok()?;
        Some(parse_copy(&bytes))
    }

    pub(super) fn is_copy(number: RawFd) -> bool {
        fs::read_link(format!("/proc/self/fd/{number}"))
            .is_ok_and(|link| link.as_os_str() == MEMFD_LINK)
    }

    pub(super) fn parse_copy(bytes: &[u8]) -> Environment {
        let entries = bytes.split(|byte| *byte == 0).filter_map(|entry| {
            // The standard library also allows a name that begins with `=`.
            let at = entry.iter().skip(1).position(|byte| *byte == b'=')? + 1;
            Some((
                OsString::from_vec(entry[..at].to_vec()),
                OsString::from_vec(entry[at + 1..].to_vec()),
            ))
        });
        Environment {
            is_concealed: true,
            ..entries.collect()
        }
    }

    /// Restores the name of the process. The kernel uses the name of the started file, which was
    /// the link `exe`; `ps` would show that.
    fn restore_name() {
        let name = std::env::current_exe()
            .ok()
            .and_then(|program| CString::new(program.file_name()?.as_bytes()).ok());
        if let Some(name) = name {
            let _ = rustix::thread::set_name(&name);
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::ffi::OsStringExt as _;

    use super::linux::{is_copy, parse_copy, write_copy};
    use super::{Environment, is_kept};

    #[test]
    fn environment_copy_round_trips() {
        let odd = OsString::from_vec(vec![0xff, b'=', b'\n']);
        let variables = [
            ("A", OsString::from("1")),
            ("EMPTY", OsString::new()),
            ("B", odd),
            ("C", "x=y".into()),
        ];
        let environment: Environment = variables.into_iter().collect();
        let copy = write_copy(&environment).unwrap();
        assert!(is_copy(copy.as_raw_fd()));
        let mut bytes = Vec::new();
        File::from(copy).read_to_end(&mut bytes).unwrap();
        let read = parse_copy(&bytes);
        assert!(read.iter().eq(environment.iter()));
        assert!(read.is_concealed && !environment.is_concealed);
    }

    #[test]
    fn secret_variable_names_are_not_kept() {
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
