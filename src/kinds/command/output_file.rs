//! `output: {file: …}`: answers with a file that the program wrote below the tool's working folder.
//!
//! The path may come from the program's output, and so from a model. So cap-std resolves it inside
//! the folder, and files that usually hold secrets are not read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_process::sandbox::{Files, Sandbox};

use super::run::StreamCapture;
use crate::call::json::plain_text;
use crate::call::units::Count;
use crate::call::{Content, Resource, ToolContext, ToolError, ToolResult};
use crate::kinds::denied_files::DeniedFiles;
use crate::kinds::folder::{self, Folder, MAX_PATH_BYTES};
use crate::kinds::native::run_on_blocking_thread;
use crate::kinds::template::{Part, Template};
use crate::kinds::{BuildContext, ConfigFault, Placeholder, ValueFault, Values, media};

/// The name of standard output in the path.
const STDOUT: &str = "stdout";
/// The key of the path.
const KEY: [&str; 2] = ["output", "file"];

/// Finds and reads the file of a call.
pub(super) struct OutputFile {
    path: Template,
    denied: Arc<DeniedFiles>,
    /// The working folder with all links resolved, if it was there when the tool was built. A program may put a
    /// link in its place.
    folder: Option<PathBuf>,
}

/// The folder of a call's file, opened before the program starts.
pub(super) struct ResultFolder {
    folder: Folder,
    path: PathBuf,
    /// What the program does not see, and so must not get from the service.
    hidden: Vec<PathBuf>,
    /// What it sees below hidden folders.
    kept: Vec<PathBuf>,
}

impl OutputFile {
    /// Parses the path.
    pub(super) fn parse(path: &str, context: &BuildContext<'_>) -> Result<Self, Vec<ConfigFault>> {
        let fault = |message: String| ConfigFault::error(&KEY, message);
        let template = context
            .parse_template(path)
            .map_err(|message| vec![fault(message)])?;
        let mut faults = Vec::new();
        if path.trim().is_empty() {
            faults.push(fault(
                "name a file, for example chart.png, or {{ stdout }} if the program prints its path".into(),
            ));
        }
        for placeholder in template.placeholders() {
            let name = placeholder.argument().unwrap_or_default();
            match (is_stdout(placeholder), context.has_parameter(name)) {
                (true, false) => {}
                (true, true) => faults.push(fault(format!(
                    "`{{{{ {STDOUT} }}}}` is the output of the program here: give the parameter `{STDOUT}` another name"
                ))),
                (false, true) if context.may_be_absent(name) => faults.push(fault(format!(
                    "some calls have no value for `{placeholder}`: give it a default or make it required"
                ))),
                (false, _) => {
                    let reason = context.unknown_name_message(placeholder);
                    faults.extend(reason.map(|reason| fault(format!("`{{{{ {placeholder} }}}}`: {reason}"))));
                }
            }
        }
        let denied = DeniedFiles::new(None).map_err(|fault| vec![fault])?;
        if faults.is_empty() {
            Ok(Self {
                path: template,
                denied: Arc::new(denied),
                folder: None,
            })
        } else {
            Err(faults)
        }
    }

    /// Faults of values that are too long, or that would lead out of the part of the path that the
    /// manifest gives.
    pub(super) fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        let fault = |placeholder: &Placeholder| {
            let text = values.get(placeholder).map(plain_text).unwrap_or_default();
            let is_outside =
                || text.starts_with('/') || text.split(['/', '\\']).any(|segment| segment == "..");
            let message = folder::path_fault(&placeholder.to_string(), &text).or_else(|| {
                is_outside().then(|| {
                    format!(
                        "`{placeholder}` stands in the path of a file and must not lead out of its folder."
                    )
                })
            });
            message.map(|message| placeholder.fault("path", message))
        };
        self.path
            .placeholders()
            .filter(|placeholder| !is_stdout(placeholder))
            .filter_map(fault)
            .collect()
    }

    /// Resolves the working folder, if it exists already.
    pub(super) fn remember_folder(&mut self, workdir: &Path) {
        self.folder = std::fs::canonicalize(workdir).ok();
    }

    /// Opens the working folder. Call it before the program starts.
    ///
    /// # Errors
    /// A sentence: why there is no such folder.
    pub(super) fn open_folder(
        &self,
        workdir: &Path,
        sandbox: Option<&Sandbox>,
    ) -> Result<ResultFolder, String> {
        let resolved = || std::fs::canonicalize(workdir).ok();
        let Some(path) = self.folder.clone().or_else(resolved) else {
            return Err("its working folder does not exist".into());
        };
        let files = sandbox.map(|sandbox| match &sandbox.rules().files {
            Files::AllExcept { hidden, kept, .. } | Files::Only { hidden, kept, .. } => {
                let kept = kept.iter().map(|kept| kept.path.clone());
                (hidden.clone(), kept.collect())
            }
        });
        let (hidden, kept) = files.unwrap_or_default();
        let folder = Folder::open_without_links(&path)
            .map_err(|error| format!("its working folder cannot be opened: {error}"))?;
        Ok(ResultFolder {
            folder,
            path,
            hidden,
            kept,
        })
    }

    /// The file as a result. A path without a readable file is an error result.
    pub(super) async fn read_result(
        &self,
        stdout: &StreamCapture,
        values: Values<'_>,
        (workdir, folder): (&Path, ResultFolder),
        max_bytes: usize,
        context: &ToolContext,
    ) -> Result<ToolResult, ToolError> {
        let path = self.find_path(stdout, values, workdir)?;
        let (denied, context) = (self.denied.clone(), context.clone());
        run_on_blocking_thread(move || {
            let is_denied = |path: &str| {
                denied.is_denied(path) || is_file_of_the_service(path) || folder.hides(path)
            };
            let file = folder
                .folder
                .open_unless_denied(&path, is_denied, &context)?;
            if folder.hidden.iter().any(|hidden| file.is_at(hidden)) {
                return Err(folder::file_error(&path, "is not read: it is hidden"));
            }
            let bytes = file.read_all(Vec::new(), max_bytes, "max_output")?;
            Ok(file_result(&path, bytes))
        })
        .await
    }

    /// The path of the file, relative to the folder.
    fn find_path(
        &self,
        stdout: &StreamCapture,
        values: Values<'_>,
        workdir: &Path,
    ) -> Result<String, ToolError> {
        let mut path = String::new();
        for part in self.path.parts() {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Value(placeholder, _) if is_stdout(placeholder) => {
                    path.push_str(read_printed_path(stdout)?);
                }
                Part::Value(placeholder, _) => {
                    path.push_str(&values.get(placeholder).map(plain_text).unwrap_or_default());
                }
            }
        }
        // Programs often print absolute paths.
        let below = Path::new(&path)
            .strip_prefix(workdir)
            .ok()
            .and_then(Path::to_str);
        Ok(below.map(str::to_owned).unwrap_or(path))
    }
}

impl ResultFolder {
    /// Whether the path below the folder leads into something that the program does not see.
    fn hides(&self, path: &str) -> bool {
        let path = self.path.join(path);
        // The innermost of them decides.
        let depth = |listed: &[PathBuf]| {
            let real =
                |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let above = listed
                .iter()
                .map(real)
                .filter(|real| path.starts_with(real));
            above.map(|real| real.components().count()).max()
        };
        depth(&self.hidden) > depth(&self.kept)
    }
}

/// Whether a file is a manifest or part of a ledger, by its usual name. The working folder is often
/// that of the manifest.
fn is_file_of_the_service(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|name| name.to_lowercase().starts_with("toolcrib."))
}

fn is_stdout(placeholder: &Placeholder) -> bool {
    matches!(placeholder, Placeholder::Argument(name) if name == STDOUT)
}

/// The path that the program printed.
fn read_printed_path(stdout: &StreamCapture) -> Result<&str, ToolError> {
    let fault = |message: String| {
        ToolError::ErrorResult(format!(
            "the program must print the path of a file, but {message}"
        ))
    };
    let bytes = stdout.head().trim_ascii();
    if !stdout.is_complete() || bytes.len() > MAX_PATH_BYTES {
        return Err(fault(format!(
            "it printed more than {}",
            Count(MAX_PATH_BYTES, "byte")
        )));
    }
    match std::str::from_utf8(bytes) {
        Ok("") => Err(fault("it printed nothing".into())),
        Ok(path) if path.contains('\0') => Err(fault("it printed a NUL character".into())),
        Ok(path) => Ok(path),
        Err(_) => Err(fault("its output is not UTF-8".into())),
    }
}

/// The content of the file as text, picture or sound, and of any other type as a file.
fn file_result(path: &str, bytes: Vec<u8>) -> ToolResult {
    if let Some(mime_type) = media::sniff_media_type(&bytes) {
        return media::content_block(mime_type, bytes, folder::file_uri(path)).into();
    }
    let bytes = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => return ToolResult::text(text),
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    };
    let mime_type = mime_guess::from_path(path).first_or_octet_stream();
    // Providers refuse a request with a picture of an unknown or wrong type. So only the bytes make
    // a picture.
    match media::content_block(mime_type.essence_str(), bytes, folder::file_uri(path)) {
        Content::Image { data, mime_type } => Content::Resource {
            resource: Resource {
                uri: folder::file_uri(path),
                mime_type: Some(mime_type),
                text: None,
                blob: Some(data),
            },
        },
        block => block,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn block_type_follows_the_bytes() {
        let shown = |path: &str, bytes: &[u8]| {
            let block = serde_json::to_value(&file_result(path, bytes.into()).content[0])
                .unwrap_or_default();
            let kind = block["type"].as_str().unwrap_or_default().to_owned();
            let mime_type = block
                .pointer("/mimeType")
                .or_else(|| block.pointer("/resource/mimeType"));
            (kind, mime_type.cloned().unwrap_or_default())
        };
        let wav = b"RIFF\x24\0\0\0WAVEfmt \xff";
        for (path, bytes, kind, mime_type) in [
            ("a.txt", b"hello".as_slice(), "text", json!(null)),
            ("a.csv", b"a,b\n1,2\n", "text", json!(null)),
            (
                "a.txt",
                b"\x89PNG\r\n\x1a\nrest\xff",
                "image",
                json!("image/png"),
            ),
            ("a.wav", wav, "audio", json!("audio/wav")),
            ("a.pdf", b"%PDF-1.7", "resource", json!("application/pdf")),
            ("a.zip", b"PK\x03\xff", "resource", json!("application/zip")),
            ("a.png", b"no picture\xff", "resource", json!("image/png")),
            ("a", b"\0", "resource", json!("application/octet-stream")),
        ] {
            assert_eq!(shown(path, bytes), (kind.to_owned(), mime_type), "{path}");
        }
    }
}
