//! Tests: what becomes of the program's output.

use super::*;

#[tokio::test]
async fn output_is_json_or_text() {
    let say = |text: &str| format!("printf '%s' '{text}'");
    let auto = json!({});
    let result = run_shell(&say("{\"a\": 1}\n"), auto.clone())
        .await
        .0
        .unwrap();
    assert_eq!(result.structured_content, Some(json!({"a": 1})));
    assert_eq!(
        text(run_shell(&say("\"quoted\""), auto.clone()).await),
        "quoted"
    );
    for (printed, expected) in [
        ("22.50", "22.50"),
        ("{half", "{half"),
        ("a\n\n", "a\n"),
        ("", ""),
        ("null", "null"),
    ] {
        let result = run_shell(&say(printed), auto.clone()).await.0.unwrap();
        assert_eq!(
            (result.as_text().as_str(), result.structured_content),
            (expected, None)
        );
    }
    let result = run_shell(&say("[1]\n"), json!({"output": "text"}))
        .await
        .0
        .unwrap();
    assert_eq!(
        (result.as_text().as_str(), result.structured_content),
        ("[1]", None)
    );
    assert_eq!(
        text(run_shell(&say("42"), json!({"output": "json"})).await),
        "42"
    );
}

async fn run_for_file(
    script: &str,
    file: &str,
    folder: &Path,
    a: &str,
) -> Result<ToolResult, ToolError> {
    let config = json!({
        "command": ["/bin/sh", "-c", script], "workdir": folder, "output": {"file": file}, "max_output": "1KiB",
    });
    call(&runner(config, Effect::Read), json!({"a": a, "b": ""}))
        .await
        .0
}

#[tokio::test]
async fn output_file_becomes_a_block() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let png = "printf '\\211PNG\\r\\n\\032\\n' > sub/a.png; ";
    for printed in [
        "echo sub/a.png",
        "echo ./sub/a.png",
        "echo $PWD/sub/a.png",
        "printf ' sub/a.png\\r\\n'",
    ] {
        let result = run_for_file(
            &format!("{png}{printed}"),
            "{{ stdout }}",
            folder.path(),
            "",
        )
        .await
        .unwrap();
        assert!(
            matches!(&result.content[..], [Content::Image { mime_type, .. }] if mime_type == "image/png"),
            "{printed}: {result:?}"
        );
    }
    let write = "seq 2000; echo hello > sub/x.txt";
    let result = run_for_file(write, "sub/{{ a }}.txt", folder.path(), "x")
        .await
        .unwrap();
    assert_eq!(
        (result.as_text().as_str(), result.is_error),
        ("hello\n", false),
        "the other output is ignored"
    );
    let failed = run_for_file("echo no >&2; exit 3", "{{ stdout }}", folder.path(), "")
        .await
        .unwrap();
    assert_eq!(
        (failed.as_text().as_str(), failed.is_error),
        ("exit status 3: no", true)
    );
}

#[tokio::test]
async fn output_file_stays_in_the_folder() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(above.path().join("secret"), "secret").unwrap();
    std::fs::write(folder.join(".env"), "secret").unwrap();
    std::fs::write(folder.join("long"), "x".repeat(1025)).unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    for (script, reason) in [
        ("echo ../secret", "`../secret` leads out of the folder"),
        ("echo $PWD/../secret", "leads out of the folder"),
        ("echo link", "`link` leads out of the folder"),
        ("echo /etc/passwd", "`/etc/passwd` leads out of the folder"),
        ("echo .env", "`.env` is not read"),
        (
            "echo x > toolcrib.db; echo toolcrib.db",
            "`toolcrib.db` is not read",
        ),
        ("echo none.png", "`none.png` does not exist"),
        ("echo .", "is a folder, not a file"),
        ("mkfifo pipe; echo pipe", "is not a regular file"),
        ("echo long", "`long` is longer than 1.0 KiB (`max_output`)"),
        (
            "true",
            "must print the path of a file, but it printed nothing",
        ),
        ("seq 2000", "it printed more than 4096 bytes"),
    ] {
        let error = run_for_file(script, "{{ stdout }}", &folder, "")
            .await
            .unwrap_err();
        assert!(
            matches!(&error, ToolError::ErrorResult(message) if message.contains(reason)),
            "{script}: {error:?}"
        );
    }
}

#[tokio::test]
async fn output_file_is_not_read_through_a_replaced_folder() {
    let above = tempfile::tempdir().unwrap();
    let path = |name: &str| above.path().join(name);
    for (folder, text) in [("out", "own"), ("private", "secret")] {
        std::fs::create_dir(path(folder)).unwrap();
        std::fs::write(path(folder).join("data"), text).unwrap();
    }
    let script = "cd ..; [ -L out ] || { mv out old; ln -s private out; }; echo data";
    let config = json!({"command": ["/bin/sh", "-c", script], "workdir": path("out"), "output": {"file": "{{ stdout }}"}});
    let tool = runner(config, Effect::Read);
    let arguments = json!({"a": "", "b": ""});
    assert_eq!(text(call(&tool, arguments.clone()).await), "own");
    let error = call(&tool, arguments).await.0.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("its working folder cannot be opened"),
        "{error}"
    );
}

#[tokio::test]
async fn output_file_is_no_hidden_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["keys", "other/data"] {
        std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        std::fs::write(path(name), "secret").unwrap();
    }
    std::fs::hard_link(path("keys"), path("link")).unwrap();
    let shared = Sandboxes::default();
    shared.set_files(ServiceFiles {
        own: vec![path("keys"), path("other")],
        ..ServiceFiles::default()
    });
    let schema = json!({"properties": {"a": {}}, "required": ["a"]});
    for name in ["keys", "link", "other/data"] {
        let config = json!({"command": ["/bin/echo", "{{ a }}"], "workdir": folder.path(), "output": {"file": "{{ stdout }}"}});
        let defaults = SandboxDefaults {
            setting: SandboxSetting::Service,
            shared: shared.clone(),
        };
        let tool = build_in(config, &schema, Effect::Read, &defaults)
            .unwrap()
            .0;
        let error = call(&tool, json!({"a": name})).await.0.unwrap_err();
        assert!(error.to_string().contains("is not read"), "{name}: {error}");
    }
}

#[tokio::test]
async fn invalid_json_error_has_position() {
    let (result, _) = run_shell("printf '{\"a\":\\n [1,'", json!({"output": "json"})).await;
    let Err(ToolError::BadOutput(message)) = result else {
        panic!("{result:?}")
    };
    assert!(message.contains("line 2 column"), "{message}");
    let (result, _) = run_shell("true", json!({"output": "json"})).await;
    assert!(matches!(result, Err(ToolError::BadOutput(message)) if message.contains("nothing")));
}

#[tokio::test]
async fn invalid_utf8_output_gets_warning() {
    let (result, warnings) = run_shell("printf 'a\\377b'", json!({})).await;
    assert_eq!(result.unwrap().as_text(), "a\u{fffd}b");
    assert!(warnings[0].contains("UTF-8"), "{warnings:?}");
}

#[tokio::test]
async fn failed_program_returns_stderr_as_error_result() {
    for (script, text) in [
        (
            "echo out; echo bad thing >&2; exit 3",
            "exit status 3: bad thing",
        ),
        ("echo out; exit 4", "exit status 4: out"),
        ("exit 5", "exited with status 5"),
        ("kill -9 $$", "ended by signal: 9 (SIGKILL)"),
        (
            "echo oh >&2; kill -15 $$",
            "ended by signal: 15 (SIGTERM): oh",
        ),
    ] {
        let result = run_shell(script, json!({"output": "json"}))
            .await
            .0
            .unwrap();
        assert_eq!((result.is_error, result.as_text().as_str()), (true, text));
    }
    let script = "i=0; while [ $i -lt 4000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1";
    let text = run_shell(script, json!({})).await.0.unwrap().as_text();
    assert!(
        text.len() < 17_000 && text.contains("line 0\n") && text.ends_with("line 3999"),
        "{}",
        text.len()
    );
    assert!(text.contains("bytes left out"));
    let text = run_shell("head -c 100000 /dev/zero | tr '\\0' x; exit 1", json!({}))
        .await
        .0
        .unwrap()
        .as_text();
    assert!(
        text.len() < 17_000 && text.contains("bytes left out"),
        "{}",
        text.len()
    );
}

#[tokio::test]
async fn start_failure_is_upstream_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plain"), "x").unwrap();
    let plain = folder.path().join("plain").to_str().unwrap().to_owned();
    for (config, reason) in [
        (
            json!({"command": ["no-such-program-here"]}),
            "no such program",
        ),
        (json!({"command": ["/no/such/program"]}), "No such file"),
        (json!({"command": [plain]}), "denied"),
        (
            json!({"command": ["true"], "workdir": "/no/such"}),
            "working folder",
        ),
    ] {
        let (result, _) = call(&runner(config, Effect::Read), json!({})).await;
        let Err(ToolError::Upstream(UpstreamFailure {
            message,
            retryable: false,
            ..
        })) = result
        else {
            panic!("{result:?}")
        };
        assert!(
            message.starts_with("cannot start ") && message.contains(reason),
            "{message}"
        );
    }
}
