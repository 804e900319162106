//! Virtual environments that are built from requirements.

use super::*;

/// Makes a wheel by hand, so that the test needs no network.
fn wheel(folder: &Path) {
    let script = "
import sys, zipfile
with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'ANSWER = 42')
    wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.0.dist-info/RECORD', '')
";
    assert!(
        std::process::Command::new(python().unwrap())
            .args(["-c", script])
            .current_dir(folder)
            .status()
            .unwrap()
            .success()
    );
}

/// Whether this Python cannot make virtual environments. Debian has a separate package for
/// them.
fn is_venv_missing() -> bool {
    let venv = std::process::Command::new("python3")
        .args(["-c", "import venv, ensurepip"])
        .output();
    let is_missing = !venv.is_ok_and(|output| output.status.success());
    if is_missing {
        println!("skipped: python3 has no venv");
    }
    is_missing
}

const SOURCE: &str = "from toolcrib import tool\nimport tiny, sys\n
@tool
def answer() -> list:
    'Answers.'
    return [tiny.ANSWER, sys.prefix]
";

fn venv_module(folder: &TempDir, mark: &str) -> Module {
    let mut settings = settings(folder, SOURCE, mark);
    settings.requirements = Some(folder.path().join("requirements.txt"));
    super::module(settings)
}

fn built_environments(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path().join("packages"))
        .unwrap()
        .flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".lock")).collect()
}

#[tokio::test]
async fn environment_is_built_once_after_an_interruption() {
    if is_python_missing() || is_venv_missing() {
        return;
    }
    let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
    wheel(folder.path());
    std::fs::write(folder.path().join("requirements.txt"), "-r more.txt\n").unwrap();
    std::fs::write(
        folder.path().join("more.txt"),
        "./tiny-1.0-py3-none-any.whl  # by hand\n",
    )
    .unwrap();
    let first = Arc::new(venv_module(&folder, &mark));
    let interrupted = tokio::spawn({
        let first = first.clone();
        async move { first.list(&|_| {}).await.map(drop) }
    });
    let venvs = folder.path().join("packages");
    wait_until("the build has started", || {
        venvs
            .is_dir()
            .then(|| built_environments(&folder))
            .filter(|built_environments| built_environments.len() == 1)
    })
    .await;
    interrupted.abort();
    let _ = interrupted.await;
    wait_until("nothing runs", || {
        processes_with_mark(&mark).is_empty().then_some(())
    })
    .await;

    let reports = Arc::new(Mutex::new(Vec::new()));
    let second = venv_module(&folder, &mark);
    let collector = reports.clone();
    let report_status = move |line: String| collector.lock().push(line);
    let (one, other) = tokio::join!(first.list(&report_status), second.list(&report_status));
    for listed in [one, other] {
        let listed = listed.unwrap();
        let result = listed.tools[0]
            .runner
            .call(object(json!({})), context(&invocation(), Effect::Read))
            .await;
        let result = result.unwrap().structured_content.unwrap();
        assert_eq!(result[0], 42);
        let prefix = result[1].as_str().unwrap();
        assert!(
            prefix.ends_with(&format!("packages/{}", built_environments(&folder)[0])),
            "{prefix}"
        );
    }
    let reports = reports.lock().clone();
    let count_of = |what: &str| reports.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(
        (
            count_of("building a virtual environment"),
            count_of("its virtual environment is built")
        ),
        (1, 1),
        "{reports:?}"
    );
    assert_eq!(count_of("waiting for another build"), 1, "{reports:?}");
    assert_eq!(built_environments(&folder).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_builds_time_out() {
    if is_python_missing() {
        return;
    }
    let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
    let file = folder.path().join("requirements.txt");
    std::fs::write(&file, "tiny\n").unwrap();
    std::fs::write(
        folder.path().join("venv.py"),
        "import time\ntime.sleep(3600)\n",
    )
    .unwrap();
    let mut settings = settings(&folder, SOURCE, &mark);
    settings.environment.insert(
        "PYTHONPATH".into(),
        folder.path().to_str().unwrap().to_owned(),
    );
    let (process_env, orphan_reaper) = (test_env(), OrphanReaper::default());
    let setup = Setup {
        settings: &settings,
        process_env: &process_env,
        orphan_reaper: &orphan_reaper,
        report_status: &|_| {},
    };
    let python = interpreter::Python {
        program: setup
            .locate_program("python3".as_ref(), "interpreter")
            .unwrap(),
        version: "3".into(),
    };
    let fault = venv::build_venv(&python, &file, &setup).await.unwrap_err();
    let shown = file.display();
    let expected = format!(
        "the virtual environment for {shown} was not built in 10m; python -m venv was still running"
    );
    assert_eq!(fault, expected);
    wait_until("nothing runs", || {
        processes_with_mark(&mark).is_empty().then_some(())
    })
    .await;

    let venvs = std::fs::read_dir(&settings.package_dir)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let lock = venvs
        .into_iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "lock"))
        .unwrap();
    let lock = std::fs::File::open(lock).unwrap();
    // A process that another test has just forked also holds the lock, until it executes its
    // program.
    wait_until("the lock is free", || lock.try_lock().ok()).await;
    let fault = venv::build_venv(&python, &file, &setup).await.unwrap_err();
    assert!(
        fault.starts_with("another build of the virtual environment ")
            && fault.ends_with(" has been running for 10m"),
        "{fault}"
    );
}

#[tokio::test]
async fn build_failure_repeats_the_last_output() {
    if is_python_missing() {
        return;
    }
    let (folder, mark) = (tempfile::tempdir().unwrap(), Uuid::now_v7().to_string());
    let requirements = folder.path().join("requirements.txt");
    std::fs::write(&requirements, "tiny\n").unwrap();
    let fails = "import sys\nprint('no room for hunter2-hunter2')\nsys.exit(1)\n";
    std::fs::write(folder.path().join("venv.py"), fails).unwrap();
    let mut settings = settings(&folder, SOURCE, &mark);
    settings.requirements = Some(requirements.clone());
    settings.environment.insert(
        "PYTHONPATH".into(),
        folder.path().to_str().unwrap().to_owned(),
    );
    let module = super::module(settings);
    let fault = module.list(&|_| {}).await.err().unwrap().0;
    let expected = "failed with exit status: 1: no room for [redacted]";
    assert_eq!(
        fault,
        format!("python -m venv for {} {expected}", requirements.display())
    );
    std::fs::remove_file(&requirements).unwrap();
    let fault = module.list(&|_| {}).await.err().unwrap().0;
    assert!(
        fault.starts_with("cannot read ") && fault.contains("requirements.txt"),
        "{fault}"
    );
}
