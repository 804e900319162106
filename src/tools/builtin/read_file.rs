//! `read_file`: text files below one folder.
//!
//! The folder is opened once, as a capability (cap-std): whatever the path says — `..`, an absolute path, a symlink —
//! the kernel is only ever asked for names below it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::units::Size;
use crate::call::{Effect, JsonObject, ToolContext, ToolError, ToolResult};
use crate::tools::{ConfigFault, Runner, Tool};

/// Bytes returned at once when nobody says otherwise.
const MAX_BYTES: usize = 256 << 10;

/// `with:` of the manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The folder; nothing outside is read.
    root: PathBuf,
    /// Most bytes returned at once.
    max_bytes: Option<Size>,
}

struct ReadFile {
    root: Arc<Dir>,
    max_bytes: usize,
}

pub(super) fn tool(name: &str, config: Config, base: &Path) -> Result<Tool, ConfigFault> {
    let path = base.join(&config.root);
    let root = Dir::open_ambient_dir(&path, ambient_authority()).map_err(|error| {
        ConfigFault::error(&["with", "root"], format!("{} cannot be opened as a folder: {error}", path.display()))
    })?;
    let max_bytes = config.max_bytes.map_or(MAX_BYTES, Size::as_usize);
    let tool =
        Tool::new(name, "Reads a text file, or some of its lines. Paths are relative to the folder of this tool.")
            .input_schema(json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "The file, e.g. notes/todo.md"},
                    "start_line": {"type": "integer", "minimum": 1, "description": "First line, counted from 1"},
                    "line_count": {"type": "integer", "minimum": 1, "description": "How many lines; all if left out"},
                },
                "required": ["path"],
                "additionalProperties": false,
            }))
            .effect(Effect::Read);
    Ok(tool.with_runner(Arc::new(ReadFile { root: Arc::new(root), max_bytes })))
}

#[async_trait]
impl Runner for ReadFile {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> Result<ToolResult, ToolError> {
        let (root, max_bytes) = (self.root.clone(), self.max_bytes);
        let task = tokio::task::spawn_blocking(move || {
            let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
            let line = |name: &str| arguments.get(name).and_then(Value::as_u64);
            read(&root, path, line("start_line"), line("line_count"), max_bytes)
        });
        let part = task.await.map_err(|_| ToolError::Unavailable("the file could not be read".into()))??;
        if let Some(next) = part.cut_at {
            context.warn(format!(
                "only the first {max_bytes} bytes are shown; read on with start_line {next} and a line_count"
            ));
        }
        Ok(ToolResult::text(part.text))
    }
}

struct FilePart {
    text: String,
    /// The first line that is not shown whole, if there is one.
    cut_at: Option<u64>,
}

fn read(root: &Dir, path: &str, start: Option<u64>, count: Option<u64>, max: usize) -> Result<FilePart, ToolError> {
    if path.contains('\0') {
        return Err("A path holds no NUL characters.".into());
    }
    let refuse = |error: std::io::Error| -> ToolError {
        match error.kind() {
            std::io::ErrorKind::NotFound => format!("There is no file `{path}`."),
            std::io::ErrorKind::PermissionDenied => {
                format!("`{path}` may not be read: only files inside this tool's folder are, by relative paths.")
            }
            kind => format!("`{path}` cannot be read: {kind}."),
        }
        .into()
    };
    // Looked at first: opening a pipe or a device could block for ever.
    let kind = root.metadata(path).map_err(refuse)?;
    if kind.is_dir() {
        let mut names: Vec<String> = root
            .read_dir(path)
            .map_err(refuse)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .take(100)
            .collect();
        names.sort();
        return Err(format!("`{path}` is a folder. It holds: {}.", names.join(", ")).into());
    }
    if !kind.is_file() {
        return Err(format!("`{path}` is no regular file.").into());
    }
    let mut file = BufReader::new(root.open(path).map_err(refuse)?);
    let first = start.unwrap_or(1);
    let (mut line, mut bytes, mut cut_at) = (1, Vec::new(), None);
    let last = count.map(|count| first.saturating_add(count));
    loop {
        if last.is_some_and(|last| line >= last) {
            break;
        }
        // One byte more than may be shown tells whether there is more.
        let room = if line < first { u64::MAX } else { (max - bytes.len()) as u64 + 1 };
        let mut piece = Vec::new();
        let found = if line < first {
            skip_line(&mut file).map_err(refuse)?
        } else {
            (&mut file).take(room).read_until(b'\n', &mut piece).map_err(refuse)?
        };
        if found == 0 {
            break;
        }
        if line >= first {
            bytes.extend_from_slice(&piece);
            if bytes.len() > max {
                bytes.truncate(max);
                cut_at = Some(line);
                break;
            }
        }
        line += 1;
    }
    if first > 1 && bytes.is_empty() {
        return Err(format!("`{path}` has no line {first}: it has {} lines.", line - 1).into());
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // A character may have been cut in two; anything else is no text.
        Err(error) if cut_at.is_some() && error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            String::from_utf8(bytes).unwrap_or_default()
        }
        Err(_) => return Err(format!("`{path}` is no text file (not UTF-8).").into()),
    };
    Ok(FilePart { text, cut_at })
}

/// Passes over one line without keeping it; says how many bytes it had.
fn skip_line(file: &mut impl BufRead) -> std::io::Result<usize> {
    let mut passed = 0;
    loop {
        let buffer = file.fill_buf()?;
        if buffer.is_empty() {
            return Ok(passed);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        file.consume(used);
        passed += used;
        if end.is_some() {
            return Ok(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> (tempfile::TempDir, Dir) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        std::fs::write(root.join("sub/b.txt"), "b").unwrap();
        symlink("../../secret", root.join("sub/out")).unwrap();
        symlink("/etc/passwd", root.join("abs")).unwrap();
        symlink("a.txt", root.join("in")).unwrap();
        let dir = Dir::open_ambient_dir(&root, ambient_authority()).unwrap();
        (folder, dir)
    }

    fn said(dir: &Dir, path: &str) -> String {
        read(dir, path, None, None, 1000).err().unwrap().to_string()
    }

    #[test]
    fn files_inside_are_read_whole_or_by_lines() {
        let (_folder, dir) = folder();
        let text = |path, start, count| read(&dir, path, start, count, 1000).unwrap().text;
        assert_eq!(text("a.txt", None, None), "one\ntwo\nthree\n");
        assert_eq!(text("./sub/../in", Some(2), Some(1)), "two\n");
        assert_eq!(text("a.txt", Some(3), Some(9)), "three\n");
        assert!(read(&dir, "a.txt", Some(9), None, 1000).is_err());
    }

    #[test]
    fn nothing_outside_is_read() {
        let (_folder, dir) = folder();
        for path in ["../secret", "sub/../../secret", "sub/out", "abs", "/etc/passwd", "sub/../../../etc/passwd"] {
            let said = said(&dir, path);
            assert!(said.contains("may not be read"), "{path}: {said}");
        }
    }

    #[test]
    fn what_is_no_text_file_is_said() {
        let (folder, dir) = folder();
        std::fs::write(folder.path().join("root/binary"), [0xff, 0xfe, 0, 1]).unwrap();
        let fifo = folder.path().join("root/fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(said(&dir, "binary").contains("no text file"));
        assert!(said(&dir, "fifo").contains("no regular file"));
        assert!(said(&dir, "sub").contains("b.txt, out"));
        assert!(said(&dir, "missing").contains("no file `missing`"));
        assert!(said(&dir, "a\0b").contains("NUL"));
    }

    #[test]
    fn a_large_file_is_cut_at_a_character_and_says_where_to_go_on() {
        let (folder, dir) = folder();
        std::fs::write(folder.path().join("root/big"), "åß\n".repeat(1000)).unwrap();
        let part = read(&dir, "big", None, None, 8).unwrap();
        assert_eq!((part.text.as_str(), part.cut_at), ("åß\nå", Some(2)));
        let part = read(&dir, "big", Some(900), Some(2), 1000).unwrap();
        assert_eq!((part.text.as_str(), part.cut_at), ("åß\nåß\n", None));
    }
}
