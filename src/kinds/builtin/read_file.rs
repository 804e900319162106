//! `read_file`: reads files below one folder. Text is read completely or by lines, pictures and PDF
//! documents completely.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::arguments::text_argument;
use crate::call::units::{Count, Size};
use crate::call::{
    CutEnds, Effect, Incomplete, JsonObject, SurroundedPart, ToolContext, ToolError, ToolResult,
    Unit,
};
use crate::kinds::denied_files::DeniedFiles;
use crate::kinds::folder::{self, Folder};
use crate::kinds::native::run_on_blocking_thread;
use crate::kinds::{
    ConfigFault, Placeholder, Runner, Tool, ToolOutcome, ValueFault, Values, media,
};

/// The highest `max_bytes`.
const MAX_MAX_BYTES: u64 = 4 << 20;

/// The settings (`with:`).
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Folder of the files, relative to the manifest.
    #[schemars(extend("examples" = ["./notes"]))]
    root: PathBuf,
    /// Longest part of a file that one call returns, at most 4MiB.
    #[serde(default = "default_max_bytes")]
    #[schemars(extend("examples" = ["64KiB"]), extend("default" = "256KiB"))]
    max_bytes: Size,
    /// Patterns of files that are not read. Replaces the default list, which the tool's description
    /// shows.
    #[schemars(extend("examples" = [["*.key", "private"]]))]
    deny: Option<Vec<String>>,
}

/// The most bytes per read.
const READ_BLOCK_BYTES: usize = 64 << 10;

/// The default `max_bytes`.
const DEFAULT_MAX_BYTES: usize = 256 << 10;

fn default_max_bytes() -> Size {
    Size(DEFAULT_MAX_BYTES as u64)
}

/// The tool, registered as `name`.
pub(super) fn tool(name: &str, config: Config, base: &Path) -> Result<Tool, ConfigFault> {
    if !(1..=MAX_MAX_BYTES).contains(&config.max_bytes.0) {
        return Err(ConfigFault::error(
            &["with", "max_bytes"],
            "from 1B to 4MiB",
        ));
    }
    let folder = Folder::open(&config.root, base)?;
    let denied = DeniedFiles::new(config.deny)?;
    let description = "Reads a text file. Returns the whole file or the requested lines. For a long \
        file it returns the first part and says how to continue. A picture (PNG, JPEG, GIF, WebP) or a PDF document is \
        returned completely.";
    let description = format!("{description}{}", denied.description_sentence());
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The file, relative to the folder that this tool reads"},
            "start_line": {"type": "integer", "minimum": 1, "description": "First line to read, from 1"},
            "line_count": {"type": "integer", "minimum": 1, "description": "How many lines to read"},
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let runner = ReadFile {
        folder,
        denied: Arc::new(denied),
        max_bytes: config.max_bytes.as_usize(),
    };
    Ok(Tool::new(name, description)
        .input_schema(schema)
        .effect(Effect::Read)
        .with_runner(Arc::new(runner)))
}

struct ReadFile {
    folder: Folder,
    denied: Arc<DeniedFiles>,
    max_bytes: usize,
}

#[async_trait]
impl Runner for ReadFile {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        let number = |name| arguments.get(name).and_then(Value::as_u64);
        let page = FilePage {
            path: text_argument(&arguments, "path").to_owned(),
            start: number("start_line").unwrap_or(1).max(1),
            count: number("line_count").unwrap_or(u64::MAX),
            max_bytes: self.max_bytes,
        };
        let (folder, denied) = (self.folder.clone(), self.denied.clone());
        run_on_blocking_thread(move || page.read(&folder, &denied, &context)).await
    }

    fn max_output(&self) -> Option<usize> {
        Some(self.max_bytes).filter(|max_bytes| *max_bytes > DEFAULT_MAX_BYTES)
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        folder::path_fault("path", text_argument(values.arguments, "path"))
            .map(|message| Placeholder::Argument("path".into()).fault("path", message))
            .into_iter()
            .collect()
    }
}

/// The requested part of a file.
struct FilePage {
    path: String,
    start: u64,
    count: u64,
    max_bytes: usize,
}

impl FilePage {
    fn read(
        &self,
        folder: &Folder,
        denied: &DeniedFiles,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let failed = |error| folder::io_error(&self.path, &error);
        let mut file =
            folder.open_unless_denied(&self.path, |path| denied.is_denied(path), context)?;
        let mut head = Vec::with_capacity(media::SNIFF_BYTES);
        file.by_ref()
            .take(media::SNIFF_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(failed)?;
        if let Some(mime_type) = media::sniff_media_type(&head) {
            let bytes = file.read_all(head, self.max_bytes, "with.max_bytes")?;
            let block = media::content_block(mime_type, bytes, folder::file_uri(&self.path));
            return Ok(block.into());
        }
        let mut reader = BufReader::with_capacity(READ_BLOCK_BYTES, head.as_slice().chain(file));
        let margin = context.max_secret_len();
        let mut before = LastBytes::new(margin);
        for line in 0..self.start - 1 {
            if before.skip_line(&mut reader).map_err(failed)? == 0 {
                return Err(self.too_few_lines_error(line));
            }
        }
        let mut bytes = Vec::new();
        let mut lines = 0;
        while lines < self.count && bytes.len() <= self.max_bytes {
            // One byte more than permitted is read, to see whether the file goes on.
            let room = (self.max_bytes - bytes.len() + 1) as u64;
            if reader
                .by_ref()
                .take(room)
                .read_until(b'\n', &mut bytes)
                .map_err(failed)?
                == 0
            {
                break;
            }
            lines += 1;
        }
        if lines == 0 && self.start > 1 {
            return Err(self.too_few_lines_error(self.start - 1));
        }
        let (end, cut_hint) = match bytes.len() > self.max_bytes {
            true => {
                let cut = self.find_cut(&bytes);
                context.warn(cut.warning);
                (cut.end, Some(cut.hint))
            }
            false => (bytes.len(), None),
        };
        let result = |text: String| match cut_hint {
            Some(hint) => {
                let incomplete = Incomplete::new(Unit::Characters, "max_bytes");
                ToolResult::text(text)
                    .with_incomplete(incomplete)
                    .with_hint(hint)
            }
            None => ToolResult::text(text),
        };
        let mut after = bytes.split_off(end);
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(self.unsupported_type_error());
        };
        if text.contains('\0') {
            return Err(self.unsupported_type_error());
        }
        // A secret of several lines may cross the edge of the part. So the redactor also gets the
        // bytes before and after the part.
        let more = margin.saturating_sub(after.len()) as u64;
        reader.take(more).read_to_end(&mut after).map_err(failed)?;
        let is_cut_before = before.skipped > before.bytes.len();
        let before = Vec::from(before.bytes);
        if before.is_empty() && after.is_empty() {
            return Ok(result(text));
        }
        let cut_ends = CutEnds {
            start: is_cut_before,
            end: after.len() >= margin,
        };
        let part = SurroundedPart {
            before: &before,
            part: text.as_bytes(),
            after: &after,
            cut_ends,
        };
        Ok(result(context.excerpt_between(part)))
    }

    /// The cut after the last line that fits.
    fn find_cut(&self, bytes: &[u8]) -> FileCut {
        let bytes = &bytes[..self.max_bytes];
        if let Some(last) = bytes.iter().rposition(|&byte| byte == b'\n') {
            let next = self.start + bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
            let warning = format!(
                "the text was cut before line {next} (max_bytes is {}): go on with start_line {next}",
                self.max_bytes
            );
            return FileCut {
                end: last + 1,
                warning,
                hint: format!("Go on with start_line {next}."),
            };
        }
        // The cut must not split a character.
        let end = match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        };
        let next = self.start + 1;
        let warning = format!(
            "line {} is longer than {} (max_bytes) and was cut: the next one is start_line {next}",
            self.start,
            Count(self.max_bytes, "byte")
        );
        let hint = format!(
            "The rest of line {} cannot be read. Go on with start_line {next}.",
            self.start
        );
        FileCut { end, warning, hint }
    }

    fn unsupported_type_error(&self) -> ToolError {
        self.file_error(
            "is neither a text file (UTF-8) nor a PNG, JPEG, GIF or WebP picture nor a PDF",
        )
    }

    fn too_few_lines_error(&self, lines: u64) -> ToolError {
        self.file_error(&format!(
            "has {}, so there is no line {}",
            Count(lines, "line"),
            self.start
        ))
    }

    fn file_error(&self, problem: &str) -> ToolError {
        folder::file_error(&self.path, problem)
    }
}

/// Where a text that is too long is cut.
struct FileCut {
    /// The number of bytes that are shown.
    end: usize,
    /// What was cut, and how to continue.
    warning: String,
    /// Tells a model how to continue.
    hint: String,
}

/// The last bytes of the skipped part, in bounded memory.
struct LastBytes {
    bytes: VecDeque<u8>,
    max_bytes: usize,
    skipped: usize,
}

impl LastBytes {
    fn new(max_bytes: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            max_bytes,
            skipped: 0,
        }
    }

    /// Skips the current line. Returns the number of skipped bytes, which is 0 at the end of the
    /// file.
    fn skip_line(&mut self, reader: &mut impl BufRead) -> io::Result<usize> {
        let mut skipped = 0;
        loop {
            let bytes = match reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                bytes => bytes?,
            };
            let end = bytes
                .iter()
                .position(|&byte| byte == b'\n')
                .map(|at| at + 1);
            let taken = end.unwrap_or(bytes.len());
            self.push(&bytes[..taken]);
            reader.consume(taken);
            skipped += taken;
            if end.is_some() || taken == 0 {
                return Ok(skipped);
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.skipped += bytes.len();
        let last = &bytes[bytes.len().saturating_sub(self.max_bytes)..];
        self.bytes.extend(last);
        let left_out = self.bytes.len().saturating_sub(self.max_bytes);
        self.bytes.drain(..left_out);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;
    use crate::call::{Caller, Invocation, ToolName, ToolSettings};

    struct Fixture {
        folder: tempfile::TempDir,
        tool: Tool,
    }

    fn fixture(max_bytes: &str) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        std::fs::write(root.join("sub/é.txt"), "ü").unwrap();
        let config =
            serde_json::from_value(json!({"root": "root", "max_bytes": max_bytes})).unwrap();
        let tool = tool("read", config, folder.path()).unwrap_or_else(|fault| panic!("{fault:?}"));
        Fixture { folder, tool }
    }

    impl Fixture {
        async fn content(&self, arguments: Value) -> Vec<Value> {
            let result = self.result(arguments).await.0.unwrap();
            result
                .content
                .iter()
                .map(|block| serde_json::to_value(block).unwrap())
                .collect()
        }

        async fn read(&self, arguments: Value) -> (Result<String, String>, Vec<String>) {
            let (result, warnings) = self.result(arguments).await;
            (
                result
                    .map(|result| result.as_text())
                    .map_err(|error| error.to_string()),
                warnings,
            )
        }

        async fn result(&self, arguments: Value) -> (Result<ToolResult, ToolError>, Vec<String>) {
            let (name, caller) = (ToolName::parse("t").unwrap(), Arc::new(Caller::anonymous()));
            let invocation =
                Invocation::new(name, JsonObject::new(), caller, jiff::Timestamp::now());
            let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
            let context =
                ToolContext::new(&invocation, deadline, Arc::new(ToolSettings::default()));
            let arguments = Arc::new(arguments.as_object().unwrap().clone());
            let result = self.tool.runner.call(arguments, context).await;
            let warnings = invocation.report.tool.lock().warnings.clone();
            (result, warnings)
        }

        async fn text(&self, arguments: Value) -> String {
            let (result, warnings) = self.read(arguments).await;
            assert_eq!(warnings, Vec::<String>::new());
            result.unwrap()
        }
    }

    #[tokio::test]
    async fn files_are_read_completely_or_by_lines() {
        let files = fixture("256KiB");
        assert_eq!(
            files.text(json!({"path": "a.txt"})).await,
            "one\ntwo\nthree\n"
        );
        assert_eq!(
            files
                .text(json!({"path": "./sub/../a.txt", "start_line": 2}))
                .await,
            "two\nthree\n"
        );
        assert_eq!(
            files
                .text(json!({"path": "a.txt", "start_line": 2, "line_count": 1}))
                .await,
            "two\n"
        );
        assert_eq!(
            files
                .text(json!({"path": "a.txt", "start_line": 3, "line_count": 9}))
                .await,
            "three\n"
        );
        assert_eq!(files.text(json!({"path": "sub/é.txt"})).await, "ü");
        let error = files
            .read(json!({"path": "a.txt", "start_line": 4}))
            .await
            .0
            .unwrap_err();
        assert_eq!(error, "`a.txt` has 3 lines, so there is no line 4");
        let error = files
            .read(json!({"path": "a.txt", "start_line": u64::MAX}))
            .await
            .0
            .unwrap_err();
        assert!(error.contains("has 3 lines"));
        std::fs::write(files.folder.path().join("root/empty"), "").unwrap();
        assert_eq!(files.text(json!({"path": "empty"})).await, "");
    }

    #[tokio::test]
    async fn paths_cannot_leave_the_folder() {
        let files = fixture("256KiB");
        let root = files.folder.path().join("root");
        std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("far")).unwrap();
        std::os::unix::fs::symlink("a.txt", root.join("near")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let absolute = root.join("a.txt").to_str().unwrap().to_owned();
        let paths = [
            "../secret",
            "sub/../../secret",
            "link",
            "up/secret",
            "far",
            "/etc/passwd",
            &absolute,
            "..",
            "//etc/passwd",
        ];
        for path in paths {
            let error = files.read(json!({"path": path})).await.0.unwrap_err();
            assert!(error.contains("leads out"), "{path}: {error}");
        }
        assert_eq!(
            files.text(json!({"path": "near"})).await,
            "one\ntwo\nthree\n"
        );
        for (path, expected) in [
            ("nope", "does not exist"),
            ("a.txt/x", "cannot be read"),
            ("", "does not exist"),
            ("x\0y", "cannot be read"),
            ("sub", "is a folder"),
            ("loop", "cannot be read"),
        ] {
            let error = files.read(json!({"path": path})).await.0.unwrap_err();
            assert!(
                error.contains(expected) && !error.contains(files.folder.path().to_str().unwrap()),
                "{path}: {error}"
            );
        }
    }

    #[tokio::test]
    async fn path_is_bounded() {
        let fixture = fixture("1KiB");
        let faults = |bytes: usize| {
            let arguments = json!({"path": "a".repeat(bytes)});
            let values = Values::from_arguments(arguments.as_object().unwrap());
            let faults = fixture.tool.runner.value_faults(values);
            faults.first().map(|fault| fault.message().to_owned())
        };
        assert_eq!(faults(4096), None);
        let message = "`path` is too long: a path has at most 4096 bytes.";
        assert_eq!(faults(4097).as_deref(), Some(message));
        // A caller of the runner without the check gets the same.
        let (result, _) = fixture.read(json!({"path": "a/".repeat(3000)})).await;
        assert_eq!(result, Err(message.to_owned()));
    }

    #[tokio::test]
    async fn denied_files_are_unreadable_by_any_path() {
        let files = fixture("256KiB");
        let root = files.folder.path().join("root");
        std::fs::create_dir_all(root.join("sub/.git")).unwrap();
        for file in [".env", "sub/.Env.local", "sub/.git/config", "server.PEM"] {
            std::fs::write(root.join(file), "very-secret").unwrap();
        }
        std::os::unix::fs::symlink(".env", root.join("notes.txt")).unwrap();
        std::os::unix::fs::symlink("sub/.git", root.join("folder")).unwrap();
        std::os::unix::fs::symlink("a.txt", root.join(".env.link")).unwrap();
        for path in [
            ".env",
            "./.env",
            "sub/../.env",
            ".ENV",
            "sub/.Env.local",
            "sub/.git/config",
            "server.PEM",
            "notes.txt",
            "folder/config",
            ".env.link",
            "sub/.env.absent",
        ] {
            let error = files.read(json!({"path": path})).await.0.unwrap_err();
            assert_eq!(
                error,
                format!("`{path}` is not read: the operator has denied files of this kind")
            );
        }
        assert_eq!(
            files.text(json!({"path": "a.txt"})).await,
            "one\ntwo\nthree\n"
        );
        let description = &files.tool.definition.description;
        assert!(
            description.contains(".env*, *.pem")
                && description.ends_with(".git, .git-credentials."),
            "{description}"
        );
        let custom = json!({"root": "root", "deny": ["a.*"]});
        let custom = tool(
            "read",
            serde_json::from_value(custom).unwrap(),
            files.folder.path(),
        );
        let custom = Fixture {
            folder: files.folder,
            tool: custom.unwrap_or_else(|fault| panic!("{fault:?}")),
        };
        assert_eq!(custom.text(json!({"path": ".env"})).await, "very-secret");
        assert!(
            custom.read(json!({"path": "A.TXT"})).await.0.is_err()
                && custom.read(json!({"path": "a.txt"})).await.0.is_err()
        );
        assert!(
            custom
                .tool
                .definition
                .description
                .ends_with("are not read: a.*.")
        );
    }

    #[tokio::test]
    async fn unsupported_files_are_rejected_at_once() {
        let files = fixture("256KiB");
        let root = files.folder.path().join("root");
        let fifo = std::process::Command::new("mkfifo")
            .arg(root.join("fifo"))
            .status()
            .unwrap();
        assert!(fifo.success());
        let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        for path in ["fifo", "socket"] {
            let started = Instant::now();
            let error = files.read(json!({"path": path})).await.0.unwrap_err();
            assert!(
                error.contains("not a regular file") && started.elapsed() < Duration::from_secs(1),
                "{error}"
            );
        }
        std::fs::write(root.join("latin"), b"a\xe9b").unwrap();
        std::fs::write(root.join("binary"), b"a\0b").unwrap();
        for path in ["latin", "binary"] {
            assert!(
                files
                    .read(json!({"path": path}))
                    .await
                    .0
                    .unwrap_err()
                    .contains("neither a text file")
            );
        }
    }

    #[tokio::test]
    async fn pictures_and_pdfs_are_returned_completely() {
        let files = fixture("1KiB");
        let root = files.folder.path().join("root");
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 100]].concat();
        // The bytes decide, not the name.
        std::fs::write(root.join("sub/shot.txt"), &png).unwrap();
        std::fs::write(root.join("sub/é 1.pdf"), "%PDF-1.7\n").unwrap();
        std::fs::write(root.join("big.png"), [png.as_slice(), &[0; 1024]].concat()).unwrap();
        std::fs::write(root.join("cut.png"), "\x7fPNG").unwrap();
        let content = files
            .content(json!({"path": "sub/shot.txt", "start_line": 1}))
            .await;
        assert_eq!(
            content,
            [json!({"type": "image", "data": BASE64.encode(&png), "mimeType": "image/png"})]
        );
        let content = files.content(json!({"path": "./sub/é 1.pdf"})).await;
        let (uri, blob) = ("file:///sub/%C3%A9%201.pdf", BASE64.encode("%PDF-1.7\n"));
        assert_eq!(
            content,
            [
                json!({"type": "resource", "resource": {"uri": uri, "mimeType": "application/pdf", "blob": blob}})
            ]
        );
        let error = files.read(json!({"path": "big.png"})).await.0.unwrap_err();
        assert_eq!(error, "`big.png` is longer than 1.0 KiB (`with.max_bytes`)");
        assert_eq!(files.text(json!({"path": "cut.png"})).await, "\x7fPNG");
    }

    #[tokio::test]
    async fn long_file_is_read_in_pages() {
        let files = fixture("1KiB");
        let root = files.folder.path().join("root");
        let all: String = (1..=200_000).map(|n| format!("line {n} é\n")).collect();
        std::fs::write(root.join("long"), &all).unwrap();
        let (first, warnings) = files.read(json!({"path": "long"})).await;
        let first = first.unwrap();
        assert!(first.len() <= 1024 && all.starts_with(&first) && first.ends_with('\n'));
        let next = first.lines().count() + 1;
        assert!(
            warnings[0].ends_with(&format!("go on with start_line {next}")),
            "{warnings:?}"
        );
        let (second, _) = files
            .read(json!({"path": "long", "start_line": next}))
            .await;
        assert!(second.unwrap().starts_with(&format!("line {next} é\n")));
        assert_eq!(
            files
                .text(json!({"path": "long", "start_line": 200_000}))
                .await,
            "line 200000 é\n"
        );

        std::fs::write(
            root.join("wide"),
            format!("x{}\nnext\n", "é".repeat(1_000_000)),
        )
        .unwrap();
        let (wide, warnings) = files.read(json!({"path": "wide"})).await;
        assert_eq!(wide.unwrap().len(), 1023);
        assert!(warnings[0].contains("line 1 is longer"), "{warnings:?}");
        assert_eq!(
            files.text(json!({"path": "wide", "start_line": 2})).await,
            "next\n"
        );
        std::fs::write(root.join("exact"), "x".repeat(1024)).unwrap();
        assert_eq!(files.text(json!({"path": "exact"})).await.len(), 1024);
    }

    #[test]
    fn invalid_settings_are_rejected() {
        for (config, key) in [
            (json!({"root": "./no/such"}), "root"),
            (json!({"root": ".", "max_bytes": "5MiB"}), "max_bytes"),
            (json!({"root": ".", "deny": [""]}), "deny"),
        ] {
            let config = serde_json::from_value(config).unwrap();
            let Err(fault) = tool("t", config, Path::new("/tmp/.")) else {
                panic!("{key}")
            };
            assert_eq!(fault.path, ["with", key]);
            assert!(
                key != "root"
                    || fault
                        .message
                        .starts_with("cannot open the folder /tmp/no/such: "),
                "{fault:?}"
            );
        }
        assert!(serde_json::from_value::<Config>(json!({"root": ".", "rot": 1})).is_err());
        assert!(serde_json::from_value::<Config>(json!({})).is_err());
    }

    #[tokio::test]
    async fn lines_without_complete_secret_stay_unredacted() {
        let fixture = fixture("60B");
        let write =
            |text: &str| std::fs::write(fixture.folder.path().join("root/s.txt"), text).unwrap();
        let redactor = Arc::new(crate::secrets::Redactor::new([
            "sk-scripted-0123456789abcdef",
        ]));
        let read = async |arguments: Value| {
            let (context, _call) = crate::kinds::http::tests::test_context();
            let mut context = context.with_redactor(redactor.clone());
            context.deadline += Duration::from_secs(60);
            let arguments = Arc::new(arguments.as_object().unwrap().clone());
            fixture
                .tool
                .runner
                .call(arguments, context)
                .await
                .unwrap()
                .as_text()
        };
        // Each line begins with the end of one form of the secret, and ends with the start of
        // another.
        let lines: Vec<String> = (0..4000).map(|n| format!("f {n} sk-scripted-\n")).collect();
        write(&lines.concat());
        for start in [1, 2, 3999, 4000] {
            let text = read(json!({"path": "s.txt", "start_line": start, "line_count": 1})).await;
            assert_eq!(text, lines[start - 1], "{start}");
        }
        assert_eq!(
            read(json!({"path": "s.txt", "start_line": 2})).await,
            lines[1..4].concat(),
            "max_bytes"
        );
        // The start of a secret is redacted only if its other part follows. Here it does not, so
        // the line is ordinary text.
        write("sk-scripted-0123456789abcd\nno\n");
        assert_eq!(
            read(json!({"path": "s.txt", "line_count": 1})).await,
            "sk-scripted-0123456789abcd\n"
        );
        // A line longer than `max_bytes` is cut within the secret.
        write(&format!("{}sk-scripted-0123456789abcdef\n", "-".repeat(50)));
        assert_eq!(
            read(json!({"path": "s.txt"})).await,
            format!("{}[redacted]", "-".repeat(50))
        );
        let file = format!("{}sk-scripted-01é3456789abcdef\n", "-".repeat(45));
        write(&file);
        assert_eq!(read(json!({"path": "s.txt"})).await, file[..59]);
    }

    #[tokio::test]
    async fn parts_of_file_hold_no_secret() {
        let lines = [
            "MIIEvQIBADANBgkqhk",
            "G9w0BAQEFAASCBKcwgg",
            "SjAgEAAoIBAQC7",
        ];
        let key = format!(
            "-----BEGIN KEY-----\n{}\n-----END KEY-----",
            lines.join("\n")
        );
        let fixture = fixture("70B");
        std::fs::write(
            fixture.folder.path().join("root/k.txt"),
            format!("before\n{key}\nafter\n"),
        )
        .unwrap();
        let redactor = Arc::new(crate::secrets::Redactor::new([&*key]));
        for (start, count) in [(1, 100), (1, 3), (2, 2), (3, 1), (4, 1), (4, 100), (5, 3)] {
            let (context, _call) = crate::kinds::http::tests::test_context();
            let mut context = context.with_redactor(redactor.clone());
            context.deadline += Duration::from_secs(60);
            let arguments = json!({"path": "k.txt", "start_line": start, "line_count": count});
            let text = fixture
                .tool
                .runner
                .call(Arc::new(arguments.as_object().unwrap().clone()), context)
                .await
                .unwrap();
            let text = text.as_text();
            assert!(
                lines
                    .iter()
                    .all(|line| !text.contains(&line[..8]) && !text.contains(&line[6..])),
                "{start}: {text}"
            );
            assert_eq!(
                (text.contains("before"), text.contains("after")),
                (start == 1, start >= 4 && count > 1),
                "{start}: {text}"
            );
        }
    }
}
