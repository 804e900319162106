//! What workers write to the log.

use std::io::Write;

use tracing_subscriber::fmt::MakeWriter;

use super::*;

#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogLines {
    type Writer = Self;
    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl LogLines {
    async fn wait_for_line(&self, needle: &str) -> Value {
        wait_until(needle, || {
            let lines = String::from_utf8(self.0.lock().clone()).unwrap();
            lines
                .lines()
                .find(|line| line.contains(needle))
                .map(|line| serde_json::from_str(line).unwrap())
        })
        .await
    }
}

#[tokio::test]
async fn prints_are_logged_clean_under_their_call() {
    if is_python_missing() {
        return;
    }
    let lines = LogLines::default();
    let log = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(lines.clone())
        .finish();
    // The runtime of this test uses only this thread.
    let _log = tracing::subscriber::set_default(log);
    let source = "
import os, sys
print('loading')

@tool
def speak(text: str) -> str:
    'Prints.'
    print(text)
    os.system('echo from a child')
    print('x' * 10000, file=sys.stderr)
    raise RuntimeError('the traceback has its place')
";
    let fixture = Fixture::new(source, 1).await;
    assert_eq!(lines.wait_for_line("loading").await.get("tool"), None);
    let invocation = invocation();
    let arguments = object(json!({"text": "\u{1b}[31mkey hunter2-hunter2\u{1b}[0m"}));
    let result = fixture
        .runner("speak")
        .call(arguments, context(&invocation, Effect::Read))
        .await
        .unwrap();
    assert!(
        result.is_error && !result.as_text().contains("Traceback"),
        "{result:?}"
    );
    let line = lines.wait_for_line("key ").await;
    assert_eq!(line["message"], "key [redacted]");
    assert_eq!(
        (line["module"].as_str(), line["tool"].as_str()),
        (Some("probe"), Some("t"))
    );
    assert_eq!(
        (&line["invocation_id"], &line["level"]),
        (&json!(invocation.id.to_string()), &json!("INFO"))
    );
    assert_eq!(line["target"], "toolcrib::python");
    lines.wait_for_line("from a child").await;
    let long = lines.wait_for_line("xxx").await["message"]
        .as_str()
        .unwrap()
        .len();
    assert!(long < 5000, "{long}");
    // One record with the whole traceback.
    let line = lines.wait_for_line("ended with an exception").await;
    assert_eq!(
        (&line["invocation_id"], &line["level"]),
        (&json!(invocation.id.to_string()), &json!("WARN"))
    );
    let traceback = line["traceback"].as_str().unwrap();
    for part in [
        "Traceback (most recent call last):\n",
        ", in speak\n",
        "RuntimeError: the traceback has its place",
    ] {
        assert!(traceback.contains(part), "{traceback}");
    }
}

#[tokio::test]
async fn later_workers_run_the_listed_source() {
    if is_python_missing() {
        return;
    }
    let fixture = Fixture::new(
        &format!("{PID}\n@tool\ndef version() -> int:\n    'Version.'\n    return 1\n"),
        1,
    )
    .await;
    for (edited, replaced) in [
        (
            "@tool\ndef version() -> int:\n    'Version.'\n    return 2\n",
            1,
        ),
        ("def (", 2),
    ] {
        let before = fixture.process().await;
        std::fs::write(fixture.file("tools.py"), format!("{PID}\n{edited}\n")).unwrap();
        kill_process(before, Signal::KILL).unwrap();
        fixture.wait_for_workers(1, replaced).await;
        assert_eq!(fixture.text("version", json!({})).await, "1");
    }
}
