//! Finds the Python that runs a module.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::config::{Interpreter, ModuleSettings};
use super::protocol::span;
use super::{helper, venv};
use crate::call::Torn;
use crate::tools::ProcessEnv;
use crate::tools::StatusFn;
use crate::tools::process::{Sweeps, along, is_program};

/// The program that makes virtual environments.
const DEFAULT: &str = "python3";
/// The oldest version on which the worker runs.
const OLDEST: (u32, u32) = (3, 9);
/// Every Python since 2.6 can run this. The program in `PATH` may be a script that selects a Python, so the answer has
/// the interpreter's own path.
const QUESTION: &str = "import sys; print('python:%d.%d.%d:%s' % (sys.version_info[:3] + (sys.executable,)))";

/// An interpreter that has reported its version.
pub(super) struct Python {
    pub program: PathBuf,
    pub version: String,
}

/// The interpreter of a module. Builds its virtual environment, if there is none.
///
/// # Errors
/// A sentence with the reason.
pub(super) async fn find(
    settings: &ModuleSettings,
    surroundings: &ProcessEnv,
    sweeps: &Sweeps,
    told: &StatusFn,
) -> Result<PathBuf, String> {
    let ask = async |name: &Path| {
        let program = locate(name, surroundings)?;
        ask(&program, command(&program, settings, surroundings), sweeps, settings.start_timeout).await
    };
    match &settings.interpreter {
        Interpreter::Program(name) => Ok(ask(name).await?.program),
        Interpreter::Requirements(file) => {
            let python = ask(Path::new(DEFAULT)).await?;
            let venv = venv::VenvSpec { file, settings, surroundings, sweeps, told };
            venv.ready(&python).await
        }
    }
}

/// A command for a preparing program. It sees the variables that the module declares and a few of the service.
pub(super) fn command(program: &Path, settings: &ModuleSettings, surroundings: &ProcessEnv) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(&surroundings.variables).envs(&settings.environment);
    command
}

/// The program's file. A bare name is searched in `PATH`.
pub(super) fn locate(name: &Path, surroundings: &ProcessEnv) -> Result<PathBuf, String> {
    let shown = name.display();
    if name.components().count() > 1 || name.is_absolute() {
        return match name.metadata() {
            Err(error) => Err(format!("the interpreter {shown} cannot be run: {error}")),
            Ok(_) if !is_program(name) => Err(format!("the interpreter {shown} cannot be run: it is no program")),
            Ok(_) => Ok(name.to_owned()),
        };
    }
    let path = surroundings.variables.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default();
    along(&path, name).ok_or_else(|| format!("there is no interpreter `{shown}` along the service's PATH"))
}

/// Asks an interpreter for its version. `patience` is the longest time for the answer.
async fn ask(program: &Path, mut command: Command, sweeps: &Sweeps, patience: Duration) -> Result<Python, String> {
    let shown = program.display();
    command.args(["-c", QUESTION]);
    let mut answer = None;
    let done = helper::run(command, sweeps, |line, _| {
        if let Some((version, program)) = line.strip_prefix("python:").and_then(|rest| rest.split_once(':')) {
            answer = Some((version.to_owned(), PathBuf::from(program)));
        }
    });
    let done = match timeout(patience, done).await {
        Err(_) => return Err(format!("{shown} did not say its version within {}", span(patience))),
        Ok(Err(error)) => return Err(format!("the interpreter {shown} cannot be run: {error}")),
        Ok(Ok(done)) => done,
    };
    let Some((version, own)) = answer else {
        let last = done.last.back().filter(|(_, torn)| *torn == Torn::NOWHERE);
        let last = last.map(|(line, _)| format!(", saying: {line}")).unwrap_or_default();
        return Err(format!("{shown} is no Python that can be used: it ended with {}{last}", done.status));
    };
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
        return Err(format!("{shown} is Python {version}; {}.{} or newer is needed", OLDEST.0, OLDEST.1));
    }
    let program = if is_program(&own) { own } else { program.to_owned() };
    Ok(Python { program, version })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;
    use crate::environment::Environment;
    use crate::secrets::Redactor;

    const LONG: Duration = Duration::from_secs(30);

    /// Runs `ask` on a script with this text and these permissions.
    async fn asked(script: &str, mode: u32, patience: Duration) -> Result<Python, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("python3.8");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let environment = Environment::from_iter([("PATH", folder.path())]);
        let surroundings = ProcessEnv::new(Arc::new(Redactor::new([])), &environment);
        let program = locate(Path::new("python3.8"), &surroundings)?;
        // The file was written a moment ago, so a child process of another test may still hold it open for writing.
        for _ in 0..100 {
            match ask(&program, Command::new(&program), &Sweeps::new(), patience).await {
                Err(fault) if fault.contains("Text file busy") => tokio::time::sleep(Duration::from_millis(10)).await,
                result => return result.map_err(|fault| fault.replace(folder.path().to_str().unwrap(), "")),
            }
        }
        panic!("{} stays busy", program.display());
    }

    async fn fault(script: &str, mode: u32) -> String {
        asked(script, mode, LONG).await.err().unwrap()
    }

    #[tokio::test]
    async fn what_is_no_python_that_can_be_used_is_said() {
        let old = "#!/bin/sh\necho python:3.8.10:/nowhere/python3.8\n";
        assert_eq!(fault(old, 0o755).await, "/python3.8 is Python 3.8.10; 3.9 or newer is needed");
        assert_eq!(fault(old, 0o644).await, "there is no interpreter `python3.8` along the service's PATH");
        let other = fault("#!/bin/sh\necho what?\nexit 3\n", 0o755).await;
        assert_eq!(other, "/python3.8 is no Python that can be used: it ended with exit status: 3, saying: what?");
        let new = asked("#!/bin/sh\necho warning\necho python:3.14.0:/bin/sh\n", 0o755, LONG).await.unwrap();
        assert_eq!((new.version.as_str(), new.program.to_str().unwrap()), ("3.14.0", "/bin/sh"));
        let nothing = ProcessEnv::new(Arc::default(), &Environment::default());
        let fault = locate(Path::new("/no/such/python"), &nothing).unwrap_err();
        assert!(fault.starts_with("the interpreter /no/such/python cannot be run: No such file"), "{fault}");
        let slow = asked("#!/bin/sh\nexec sleep 3600\n", 0o755, Duration::from_millis(50)).await.err().unwrap();
        assert_eq!(slow, "/python3.8 did not say its version within 50ms");
    }
}
