//! Finds a Python, and asks for its version.

use std::path::{Path, PathBuf};

use humantime::format_duration;
use tokio::time::timeout;

use crate::call::CutEnds;
use crate::kinds::process::is_executable_file;
use crate::sources::workers::{Setup, run_to_end};

/// The oldest version on which the worker runs.
const MIN_VERSION: (u32, u32) = (3, 9);
/// Every Python since 2.6 can run this. The program in `PATH` may be a script that selects a
/// Python, so the answer has the interpreter's own path.
const VERSION_SCRIPT: &str =
    "import sys; print('python:%d.%d.%d:%s' % (sys.version_info[:3] + (sys.executable,)))";

/// An interpreter that has reported its version.
pub(super) struct Python {
    pub program: PathBuf,
    pub version: String,
}

/// Asks an interpreter for its version.
pub(super) async fn query_version(program: &Path, setup: &Setup<'_>) -> Result<Python, String> {
    let shown = program.display();
    let max_time = setup.settings.start_timeout;
    let mut command = setup.command(program);
    command.args(["-c", VERSION_SCRIPT]);
    let mut response = None;
    let outcome = run_to_end(command, setup.orphan_reaper, |line, _| {
        if let Some((version, program)) = line
            .strip_prefix("python:")
            .and_then(|rest| rest.split_once(':'))
        {
            response = Some((version.to_owned(), PathBuf::from(program)));
        }
    });
    let outcome = match timeout(max_time, outcome).await {
        Err(_) => {
            return Err(format!(
                "{shown} did not report its version within {}",
                format_duration(max_time)
            ));
        }
        Ok(Err(error)) => return Err(format!("the interpreter {shown} cannot be run: {error}")),
        Ok(Ok(outcome)) => outcome,
    };
    let Some((version, own_path)) = response else {
        let last = outcome
            .last_lines
            .back()
            .filter(|(_, cut)| *cut == CutEnds::NONE);
        let last = last
            .map(|(line, _)| format!("; its last output: {line}"))
            .unwrap_or_default();
        return Err(format!(
            "{shown} is not a usable Python: it ended with {}{last}",
            outcome.status
        ));
    };
    let mut version_parts = version.split('.').map(|number| number.parse().unwrap_or(0));
    if (
        version_parts.next().unwrap_or(0),
        version_parts.next().unwrap_or(0),
    ) < MIN_VERSION
    {
        return Err(format!(
            "{shown} is Python {version}; {}.{} or newer is needed",
            MIN_VERSION.0, MIN_VERSION.1
        ));
    }
    let program = if is_executable_file(&own_path) {
        own_path
    } else {
        program.to_owned()
    };
    Ok(Python { program, version })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::environment::Environment;
    use crate::kinds::ProcessEnv;
    use crate::kinds::process::OrphanReaper;
    use crate::secrets::Redactor;
    use crate::sources::workers::testing::settings_for_tests;
    use crate::sources::workers::{Language, ModuleSettings};

    const LONG: Duration = Duration::from_secs(30);

    /// Runs `query_version` on a script with this text and these permissions.
    async fn query_script(script: &str, mode: u32, max_time: Duration) -> Result<Python, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("python3.8");
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let environment = Environment::from_iter([("PATH", folder.path())]);
        let process_env = ProcessEnv::new(Arc::new(Redactor::new([])), &environment);
        let settings = ModuleSettings {
            start_timeout: max_time,
            ..settings_for_tests(Language::Python, &file)
        };
        let setup = Setup {
            settings: &settings,
            process_env: &process_env,
            orphan_reaper: &OrphanReaper::default(),
            report_status: &|_| {},
        };
        let program = setup.locate_program(Path::new("python3.8"), "interpreter")?;
        // The file was written a moment ago, so a child process of another test may still hold it
        // open for writing.
        for _ in 0..100 {
            match query_version(&program, &setup).await {
                Err(fault) if fault.contains("Text file busy") => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                result => {
                    return result
                        .map_err(|fault| fault.replace(folder.path().to_str().unwrap(), ""));
                }
            }
        }
        panic!("{} stays busy", program.display());
    }

    async fn query_error(script: &str, mode: u32) -> String {
        query_script(script, mode, LONG).await.err().unwrap()
    }

    #[tokio::test]
    async fn unusable_interpreters_are_explained() {
        let old_python = "#!/bin/sh\necho python:3.8.10:/nowhere/python3.8\n";
        assert_eq!(
            query_error(old_python, 0o755).await,
            "/python3.8 is Python 3.8.10; 3.9 or newer is needed"
        );
        assert_eq!(
            query_error(old_python, 0o644).await,
            "there is no interpreter `python3.8` in the service's PATH"
        );
        let not_python = query_error("#!/bin/sh\necho what?\nexit 3\n", 0o755).await;
        assert_eq!(
            not_python,
            "/python3.8 is not a usable Python: it ended with exit status: 3; its last output: what?"
        );
        let new_python = query_script(
            "#!/bin/sh\necho warning\necho python:3.14.0:/bin/sh\n",
            0o755,
            LONG,
        )
        .await
        .unwrap();
        assert_eq!(
            (
                new_python.version.as_str(),
                new_python.program.to_str().unwrap()
            ),
            ("3.14.0", "/bin/sh")
        );
        let slow_python = query_script(
            "#!/bin/sh\nexec /bin/sleep 3600\n",
            0o755,
            Duration::from_millis(50),
        )
        .await
        .err()
        .unwrap();
        assert_eq!(
            slow_python,
            "/python3.8 did not report its version within 50ms"
        );
    }
}
