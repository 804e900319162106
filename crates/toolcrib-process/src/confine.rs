//! Confines the programs that tools start. It is the only file with `unsafe`. The standard library
//! cannot express that a function may run between fork and exec. It also cannot express the
//! ownership of a file that was open when the process started.
//!
//! A program is confined in one of two ways. Only a fork can run code before the program begins.
//! But a fork copies the tables of all memory, which takes milliseconds for a large process. So the
//! program's `main` may set for the whole process what children inherit ([`confine_process`]).
//! Children are then started without a fork. Two limits must not apply to this process itself, so
//! they are set from outside, directly after the start.
//!
//! A program with a sandbox is forked in any case: its rules hold from its first instruction on, and only
//! the child can apply them to itself.
//!
//! Without a fork, for a moment a program has this process's limit of open files, because `posix_spawn` sets
//! no limits. That matters little: the program is only being loaded, and the limit then applies to
//! everything it opens later.
//!
//! Closing the gap would cost more. A limit applies to the whole process, so this process cannot
//! lower its own while it starts a program. A shell in between
//! (`sh -c 'ulimit -n 1024; exec "$0" "$@"'`) has several costs. Each start takes 0.5 ms longer on
//! a quiet machine and 2 ms on a busy one. Not every image has a shell. A shell adds variables of
//! its own, and it hides why a program cannot be started.
#![expect(
    unsafe_code,
    reason = "see the module; the reason stands beside each use"
)]

#[cfg(target_os = "linux")]
use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Mode;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit, umask};
use tokio::process::{Child, Command};

use crate::sandbox::ChildSettings;

/// Maximum number of files and sockets that a program may have open. Most systems have this
/// default.
const MAX_OPEN_FILES: u64 = 1024;

/// Whether [`confine_process`] has run. It describes the process, like the settings themselves,
/// which the kernel keeps.
static IS_PROCESS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Sets for the whole process what the programs that tools start inherit. Call it in `main`, before
/// any thread and before any program is started.
///
/// - Neither the process nor its programs gain privileges by executing a program (`no_new_privs`).
/// - Files that they make belong to their user alone (umask 077).
/// - They make no core dumps.
/// - Programs do not inherit the files that the process was started with.
///
/// Without this call programs are confined all the same, but each start takes longer the more
/// memory the process has.
pub fn confine_process() {
    IS_PROCESS_CONFINED.store(apply_inherited_settings().is_ok(), Ordering::Relaxed);
}

/// Starts a program that is confined, together with everything that it starts:
///
/// - It gains no privileges by executing a program (`no_new_privs`), so set-user-ID programs gain
///   none.
/// - Its files belong to its user alone, and it makes no core dumps.
/// - It has at most 1,024 open files, and inherits only its standard streams.
///
/// On Linux its limit of real-time computing, in microseconds, is set to `family`. This number
/// identifies the program and everything that it starts, whatever they do to their environment,
/// groups and sessions.
///
/// A program with a sandbox is forked in any case: only a fork can apply `sandbox`.
///
/// # Errors
/// The error of the system.
pub(crate) fn spawn_confined(
    command: &mut Command,
    family: u64,
    sandbox: Option<ChildSettings>,
) -> io::Result<(Child, Pid)> {
    #[cfg(target_os = "linux")]
    if IS_PROCESS_CONFINED.load(Ordering::Relaxed) && sandbox.is_none() {
        let (child, pid) = spawn(command)?;
        linux::set_limits(pid, family);
        return Ok((child, pid));
    }
    // SAFETY: the function runs in a forked copy of a process with several threads, of which only
    // one continues. So it may only do what is safe in a signal handler. It makes system calls on
    // its own values; it takes no lock and allocates no memory.
    unsafe {
        command.pre_exec(move || {
            confine_self(family)?;
            #[cfg(target_os = "linux")]
            if let Some(sandbox) = &sandbox {
                apply_sandbox(sandbox)?;
            }
            Ok(())
        });
    }
    spawn(command)
}

fn spawn(command: &mut Command) -> io::Result<(Child, Pid)> {
    let child = command.spawn()?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let pid = pid.and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the program has no process id"))?;
    Ok((child, pid))
}

/// Runs in the child before the program begins.
fn confine_self(family: u64) -> io::Result<()> {
    apply_inherited_settings()?;
    setrlimit(Resource::Nofile, open_file_limit())?;
    #[cfg(target_os = "linux")]
    linux::set_family(family);
    #[cfg(not(target_os = "linux"))]
    let _ = family;
    Ok(())
}

/// Whether a child process of this one can apply the settings. Starts no program.
#[cfg(target_os = "linux")]
pub(crate) fn can_apply(settings: ChildSettings) -> bool {
    const NO_PROGRAM: &str = "/proc/self/no-program";
    let mut command = std::process::Command::new(NO_PROGRAM);
    // SAFETY: as in `spawn_confined`.
    unsafe {
        command.pre_exec(move || {
            rustix::thread::set_no_new_privs(true)?;
            apply_sandbox(&settings)
        });
    }
    // The error is that of the settings, or else the missing program.
    let error = command.spawn().err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Restricts this process as its sandbox demands.
#[cfg(target_os = "linux")]
fn apply_sandbox(sandbox: &ChildSettings) -> io::Result<()> {
    sandbox.apply()?;
    if let Some(ruleset) = sandbox.ruleset() {
        restrict_self(ruleset)?;
    }
    sandbox.apply_filters()
}

/// Restricts this process and its children by a ruleset of Landlock (`landlock_restrict_self(2)`).
#[cfg(target_os = "linux")]
fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a system call with numbers alone. It changes the credentials of this process only.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The settings that a process and its children share.
fn apply_inherited_settings() -> io::Result<()> {
    umask(Mode::RWXG | Mode::RWXO);
    setrlimit(Resource::Core, fixed_limit(0))?;
    #[cfg(target_os = "linux")]
    {
        rustix::thread::set_no_new_privs(true)?;
        linux::set_close_on_exec();
    }
    Ok(())
}

/// A limit that cannot be raised.
fn fixed_limit(value: u64) -> Rlimit {
    Rlimit {
        current: Some(value),
        maximum: Some(value),
    }
}

/// The limit of a program. It is never above the limit of this process.
fn open_file_limit() -> Rlimit {
    let own = getrlimit(Resource::Nofile);
    let at_most =
        |limit: Option<u64>| Some(limit.map_or(MAX_OPEN_FILES, |limit| limit.min(MAX_OPEN_FILES)));
    Rlimit {
        current: at_most(own.current),
        maximum: at_most(own.maximum),
    }
}

/// Takes ownership of the inherited files whose link in `/proc/self/fd` is `link`, without the
/// standard streams. Call it in `main`, before any thread, with a link that only the program that
/// started this process gave to a file.
#[cfg(target_os = "linux")]
pub fn take_inherited_files(link: &Path) -> Vec<OwnedFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let numbers: Vec<RawFd> = entries
        .flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|file| file == link))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    let take = |number| {
        // SAFETY: the kernel has just listed the number as open, under a name that no code of this
        // process uses. No code that opens or closes files has started yet, so no other code closes
        // it.
        unsafe { OwnedFd::from_raw_fd(number) }
    };
    numbers.into_iter().map(take).collect()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_long, c_uint};
    use std::mem::MaybeUninit;
    use std::os::fd::BorrowedFd;

    use rustix::fs::{Mode, OFlags, RawDir, open};
    use rustix::io::{FdFlags, fcntl_setfd};
    use rustix::process::{Pid, Resource, prlimit, setrlimit};

    use super::{fixed_limit, open_file_limit};

    /// The standard streams have lower numbers.
    const FIRST_FD: c_uint = 3;

    /// Fails if the limit is already lower. The program is then identified by its environment.
    pub(super) fn set_family(family: u64) {
        let _ = setrlimit(Resource::Rttime, fixed_limit(family));
    }

    /// Limits a program that has just started. A program that has ended already needs no limits.
    pub(super) fn set_limits(program: Pid, family: u64) {
        let _ = prlimit(Some(program), Resource::Nofile, open_file_limit());
        let _ = prlimit(Some(program), Resource::Rttime, fixed_limit(family));
    }

    /// Lets the kernel close everything except the standard streams when the program begins. They
    /// must not be closed now: the standard library reports over a pipe of its own whether the
    /// program could be started.
    pub(super) fn set_close_on_exec() {
        // SAFETY: a system call with numbers alone (close_range(2)). It only changes flags and
        // closes nothing.
        let done: c_long = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST_FD,
                c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if done != 0 {
            mark_each_file();
        }
    }

    /// For kernels before 5.11, or a filter that does not know the call. Files that this crate
    /// opens need neither.
    pub(super) fn mark_each_file() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = open(c"/proc/self/fd", flags, Mode::empty()) else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 2048];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            if let Some(number) = parse_fd_number(entry.file_name().to_bytes()) {
                // SAFETY: the kernel has just listed it as open, and this process has one thread.
                let file = unsafe { BorrowedFd::borrow_raw(number) };
                let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
            }
        }
    }

    /// The number of a file, unless it is a standard stream.
    pub(super) fn parse_fd_number(name: &[u8]) -> Option<i32> {
        let number = name.iter().try_fold(0_i32, |number, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            number.checked_mul(10)?.checked_add(digit.cast_signed())
        })?;
        (number >= FIRST_FD.cast_signed()).then_some(number)
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::linux::{mark_each_file, parse_fd_number};

    #[test]
    fn open_files_are_marked_close_on_exec() {
        let file = File::open("/dev/null").unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        mark_each_file();
        assert_eq!(fcntl_getfd(&file).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(
            parse_fd_number(file.as_raw_fd().to_string().as_bytes()),
            Some(file.as_raw_fd())
        );
        for name in ["2", ".", "..", "", "99999999999"] {
            assert_eq!(parse_fd_number(name.as_bytes()), None, "{name}");
        }
    }
}
