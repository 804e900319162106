//! `add_image`: shows the model a picture from a file, from a URL or from a data: URI.
//!
//! The bytes alone decide the type. A picture that a provider refuses would break every later turn
//! of the conversation. So names and headers are ignored, and a picture that ends within its header
//! is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytesize::ByteSize;
use data_url::DataUrl;
use data_url::forgiving_base64::DecodeError;
use url::Url;

use super::arguments::{argument_faults, text_argument};
use super::http_get::WebAccess;
use crate::call::units::Size;
use crate::call::{Content, Effect, JsonObject, ToolContext, ToolError, ToolResult};
use crate::kinds::denied_files::DeniedFiles;
use crate::kinds::folder::{self, Folder};
use crate::kinds::http::response::{ResponseReader, url_without_secrets};
use crate::kinds::native::run_on_blocking_thread;
use crate::kinds::{
    ConfigFault, HttpClients, Runner, RunnerTraits, Tool, ToolOutcome, ValueFault, Values, media,
};

/// The default `max_bytes`: the largest picture that Anthropic's Messages API accepts.
const DEFAULT_MAX_BYTES: u64 = 5 << 20;
/// The highest `max_bytes`: about what Gemini accepts in one request (20 MB).
const MAX_BYTES: u64 = 20 << 20;

/// `with:`.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Folder of the image files, relative to the manifest. Without it, no file is read.
    #[schemars(extend("examples" = ["./notes"]))]
    root: Option<PathBuf>,
    /// Patterns of files that are not read. Replaces the default list, which the tool's description
    /// shows.
    #[schemars(extend("examples" = [["*.key", "private"]]))]
    deny: Option<Vec<String>>,
    /// The only hosts that may be reached. Default: all public hosts.
    #[schemars(extend("examples" = [["example.com"]]))]
    allow_hosts: Option<Vec<String>>,
    /// Allows private and loopback addresses. Metadata addresses are never allowed.
    #[serde(default)]
    #[schemars(extend("examples" = [true]))]
    allow_private: bool,
    /// Largest image, at most 20MiB.
    #[serde(default = "default_max_bytes")]
    #[schemars(extend("examples" = ["2MiB"]), extend("default" = "5MiB"))]
    max_bytes: Size,
}

fn default_max_bytes() -> Size {
    Size(DEFAULT_MAX_BYTES)
}

/// The tool, registered as `name`.
pub(super) fn tool(
    name: &str,
    config: Config,
    base: &Path,
    clients: &HttpClients,
) -> Result<Tool, ConfigFault> {
    if !(1..=MAX_BYTES).contains(&config.max_bytes.0) {
        return Err(ConfigFault::error(
            &["with", "max_bytes"],
            "from 1B to 20MiB",
        ));
    }
    let folder = config
        .root
        .as_deref()
        .map(|root| Folder::open(root, base))
        .transpose()?;
    if folder.is_none() && config.deny.is_some() {
        return Err(ConfigFault::error(
            &["with", "deny"],
            "`deny` has no effect without `root`: name a folder, or leave `deny` out",
        ));
    }
    let denied = DeniedFiles::new(config.deny)?;
    let web = WebAccess::new(config.allow_hosts.as_deref(), config.allow_private, clients)?;
    let max_bytes = config.max_bytes.as_usize();
    let locations = match folder {
        Some(_) => {
            "the path of a file, relative to the folder that this tool reads, an http(s) URL or a data: URI"
        }
        None => "an http(s) URL or a data: URI",
    };
    let description = format!(
        "Adds a picture to the conversation, so that you can see it. Takes PNG, JPEG, GIF and WebP, from {locations}. Use it \
         when you have to look at a picture to answer.{}",
        folder
            .as_ref()
            .map(|_| denied.description_sentence())
            .unwrap_or_default()
    );
    let folder = folder.map(|folder| (folder, Arc::new(denied)));
    let tool = Tool::new(name, description)
        .param(
            "source",
            "string",
            &format!("Where the picture is: {locations}"),
        )
        .effect(Effect::Read);
    Ok(tool.with_runner(Arc::new(AddImage {
        folder,
        web,
        max_bytes,
        response_reader: ResponseReader::with_cap(max_bytes, "with.max_bytes"),
    })))
}

struct AddImage {
    folder: Option<(Folder, Arc<DeniedFiles>)>,
    web: WebAccess,
    max_bytes: usize,
    response_reader: ResponseReader,
}

/// The location of the picture.
enum PictureSource<'a> {
    /// In the argument itself.
    Data(DataUrl<'a>),
    /// At this URL.
    Web(Url),
    /// In this file of the folder.
    File(&'a (Folder, Arc<DeniedFiles>), &'a str),
}

impl AddImage {
    /// Parses the argument. The error is a sentence.
    fn parse_source<'a>(&'a self, arguments: &'a JsonObject) -> Result<PictureSource<'a>, String> {
        let text = text_argument(arguments, "source");
        let scheme = text
            .split_once(':')
            .map(|(scheme, _)| scheme.to_ascii_lowercase());
        match (scheme.as_deref(), &self.folder) {
            (Some("data"), _) => match DataUrl::process(text) {
                Ok(url) => Ok(PictureSource::Data(url)),
                Err(_) => {
                    Err("`source` is not a data: URI: write data:image/png;base64,… with the picture's bytes.".into())
                }
            },
            (Some("http" | "https"), _) => self.web.parse_url("source", text).map(PictureSource::Web),
            (_, folder) if text.contains("://") || scheme.as_deref() == Some("file") => Err(match folder {
                Some(_) => "`source` must be an http or https URL, a data: URI, or the bare path of a file.".into(),
                None => "`source` must be an http or https URL or a data: URI.".into(),
            }),
            (_, Some(folder)) => match folder::path_fault("source", text) {
                Some(fault) => Err(fault),
                None => Ok(PictureSource::File(folder, text)),
            },
            (_, None) => Err("`source` must be an http or https URL or a data: URI: this tool reads no files.".into()),
        }
    }

    /// The bytes of a data: URI, at most `max_bytes`.
    fn decode_data_url(&self, url: &DataUrl<'_>) -> Result<Vec<u8>, ToolError> {
        let mut bytes = Vec::new();
        let done = url.decode(|part| {
            bytes.extend_from_slice(part);
            if bytes.len() > self.max_bytes {
                Err(())
            } else {
                Ok(())
            }
        });
        match done {
            Ok(_) => Ok(bytes),
            Err(DecodeError::InvalidBase64(_)) => Err("the data: URI is not valid base64".into()),
            Err(DecodeError::WriteError(())) => {
                let limit = ByteSize(self.max_bytes as u64);
                Err(format!("the picture is larger than {limit} (`with.max_bytes`)").into())
            }
        }
    }
}

#[async_trait]
impl Runner for AddImage {
    async fn call(&self, arguments: Arc<JsonObject>, context: ToolContext) -> ToolOutcome {
        match self.parse_source(&arguments)? {
            PictureSource::Data(url) => {
                picture_result("the picture in the data: URI", self.decode_data_url(&url)?)
            }
            PictureSource::Web(url) => {
                let name = url_without_secrets(url.clone());
                let response = self.web.get(url).await?;
                picture_result(
                    &name,
                    self.response_reader.read_bytes(response, &context).await?,
                )
            }
            PictureSource::File(folder, path) => {
                let ((folder, denied), path, max_bytes) =
                    (folder.clone(), path.to_owned(), self.max_bytes);
                run_on_blocking_thread(move || {
                    let file = folder.open_unless_denied(
                        &path,
                        |path| denied.is_denied(path),
                        &context,
                    )?;
                    let bytes = file.read_all(Vec::new(), max_bytes, "with.max_bytes")?;
                    picture_result(&path, bytes)
                })
                .await
            }
        }
    }

    /// Each call may use another host: the failure of one tells nothing about the others.
    fn traits(&self) -> RunnerTraits {
        RunnerTraits {
            has_one_target: false,
            ..RunnerTraits::default()
        }
    }

    fn value_faults(&self, values: Values<'_>) -> Vec<ValueFault> {
        argument_faults("source", self.parse_source(values.arguments))
    }
}

/// The picture and a description. The description is for models without vision and for readers of
/// the ledger.
fn picture_result(name: &str, bytes: Vec<u8>) -> Result<ToolResult, ToolError> {
    let mime_type = match media::sniff_media_type(&bytes) {
        Some(mime_type) if mime_type.starts_with("image/") => mime_type,
        _ => {
            return Err(
                format!("{name} is not a supported picture: use PNG, JPEG, GIF or WebP").into(),
            );
        }
    };
    let pixels = match imagesize::blob_size(&bytes) {
        Ok(size) => format!(", {}x{} pixels", size.width, size.height),
        // The size may be anywhere in a JPEG, after padding that is valid but that not every reader
        // expects.
        Err(_) if mime_type == "image/jpeg" => String::new(),
        Err(_) => {
            return Err(format!(
                "{name} is damaged: it begins as {mime_type} and ends within its header"
            )
            .into());
        }
    };
    let text = Content::text(format!(
        "{name}: {mime_type}{pixels}, {}",
        ByteSize(bytes.len() as u64)
    ));
    Ok(ToolResult {
        content: vec![media::content_block(mime_type, bytes, String::new()), text],
        ..ToolResult::default()
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::http::tests::{Reply, json_object, start_server, test_context};

    /// The first bytes of a picture, up to its size. The tool reads nothing else of it.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x02\0\0\0";
    const GIF: &[u8] = b"GIF89a\x10\0\x20\0\0\0\0";
    const WEBP: &[u8] = b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x63\0\0\x31\0\0";
    const JPEG: &[u8] = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\0\x0c\0\x22\x03";

    struct Fixture {
        folder: tempfile::TempDir,
        tool: Tool,
    }

    fn fixture(with: Value) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pictures")).unwrap();
        std::fs::write(folder.path().join("outside.png"), PNG).unwrap();
        let config = serde_json::from_value(with).unwrap();
        let tool = tool("add_image", config, folder.path(), &HttpClients::default());
        Fixture {
            tool: tool.unwrap_or_else(|fault| panic!("{fault:?}")),
            folder,
        }
    }

    impl Fixture {
        fn write(&self, name: &str, bytes: &[u8]) {
            std::fs::write(self.folder.path().join("pictures").join(name), bytes).unwrap();
        }

        async fn add(&self, source: &str) -> Result<ToolResult, String> {
            // Each call gets its own context with a later deadline, because reading a file checks
            // the deadline.
            let (mut context, _call) = test_context();
            context.deadline += std::time::Duration::from_secs(60);
            let added = self
                .tool
                .runner
                .call(json_object(json!({"source": source})), context)
                .await;
            added.map_err(|error| error.to_string())
        }

        fn fault(&self, source: &str) -> Option<String> {
            let faults = self
                .tool
                .runner
                .value_faults(Values::from_arguments(&json_object(
                    json!({"source": source}),
                )));
            faults.first().map(|fault| fault.message().to_owned())
        }
    }

    fn picture(bytes: &[u8], mime_type: &str, text: &str) -> ToolResult {
        let image = Content::Image {
            data: BASE64.encode(bytes),
            mime_type: mime_type.into(),
        };
        ToolResult {
            content: vec![image, Content::text(text)],
            ..ToolResult::default()
        }
    }

    #[tokio::test]
    async fn picture_type_comes_from_bytes() {
        let images = fixture(json!({"root": "pictures"}));
        for (name, bytes, mime_type, what) in [
            ("a.png", PNG, "image/png", "image/png, 640x480 pixels, 29 B"),
            (
                "lies.png",
                GIF,
                "image/gif",
                "image/gif, 16x32 pixels, 13 B",
            ),
            (
                "notes.txt",
                WEBP,
                "image/webp",
                "image/webp, 100x50 pixels, 30 B",
            ),
            (
                "é.jpg",
                JPEG,
                "image/jpeg",
                "image/jpeg, 34x12 pixels, 18 B",
            ),
            (
                "padded.jpg",
                b"\xff\xd8\xff\xff\xff\xe0",
                "image/jpeg",
                "image/jpeg, 6 B",
            ),
        ] {
            images.write(name, bytes);
            assert_eq!(
                images.add(name).await,
                Ok(picture(bytes, mime_type, &format!("{name}: {what}")))
            );
            let uri = format!("data:text/plain;base64,{}", BASE64.encode(bytes));
            let text = format!("the picture in the data: URI: {what}");
            assert_eq!(images.add(&uri).await, Ok(picture(bytes, mime_type, &text)));
        }
        let escaped: String = GIF.iter().map(|byte| format!("%{byte:02x}")).collect();
        let added = images
            .add(&format!("data:image/gif,{escaped}#part"))
            .await
            .unwrap();
        assert_eq!(
            added.content[0],
            Content::Image {
                data: BASE64.encode(GIF),
                mime_type: "image/gif".into()
            }
        );
    }

    #[tokio::test]
    async fn other_files_are_rejected_by_name() {
        let images = fixture(json!({"root": "pictures"}));
        for (name, bytes) in [
            (
                "photo.png",
                b"<svg xmlns='http://www.w3.org/2000/svg'/>".as_slice(),
            ),
            ("scan.jpg", b"%PDF-1.7"),
            ("x.bmp", b"BM\x46\0\0\0"),
            ("empty.gif", b""),
        ] {
            images.write(name, bytes);
            let error = format!("{name} is not a supported picture: use PNG, JPEG, GIF or WebP");
            assert_eq!(images.add(name).await, Err(error));
        }
        images.write("cut.png", &PNG[..20]);
        assert!(
            images
                .add("cut.png")
                .await
                .unwrap_err()
                .contains("is damaged")
        );
        assert_eq!(
            images.add("data:image/png;base64,!").await,
            Err("the data: URI is not valid base64".into())
        );
    }

    #[tokio::test]
    async fn only_files_in_folder_are_read() {
        let images = fixture(json!({"root": "pictures"}));
        std::os::unix::fs::symlink("../outside.png", images.folder.path().join("pictures/link"))
            .unwrap();
        for path in [
            "../outside.png",
            "link",
            images.folder.path().join("outside.png").to_str().unwrap(),
        ] {
            assert!(
                images.add(path).await.unwrap_err().contains("leads out"),
                "{path}"
            );
        }
        assert!(
            images
                .add("nope.png")
                .await
                .unwrap_err()
                .contains("does not exist")
        );
        for source in [
            "file:///etc/passwd",
            "FILE:a.png",
            "ftp://example.com/a.png",
            "data:image/png",
            "https://a b/",
        ] {
            assert!(images.fault(source).is_some(), "{source}");
        }
        let without = fixture(json!({}));
        assert_eq!(
            without.fault("a.png").unwrap(),
            "`source` must be an http or https URL or a data: URI: this tool reads no files."
        );
    }

    #[tokio::test]
    async fn denied_files_are_not_read() {
        let images = fixture(json!({"root": "pictures"}));
        images.write(".env.png", PNG);
        images.write("a.png", PNG);
        std::os::unix::fs::symlink(".env.png", images.folder.path().join("pictures/link.png"))
            .unwrap();
        for path in [".env.png", ".ENV.png", "link.png", ".git/nope.png"] {
            let error = images.add(path).await.unwrap_err();
            assert!(
                error.contains("the operator has denied files of this kind"),
                "{path}: {error}"
            );
        }
        assert!(images.add("a.png").await.is_ok());
        let description = &images.tool.definition.description;
        assert!(
            description.contains("are not read: .env*, "),
            "{description}"
        );
        let open = fixture(json!({"root": "pictures", "deny": ["a.*"]}));
        open.write(".env.png", PNG);
        open.write("a.png", PNG);
        assert!(open.add(".env.png").await.is_ok() && open.add("a.png").await.is_err());
        assert!(
            !fixture(json!({}))
                .tool
                .definition
                .description
                .contains("not read"),
            "it reads no files"
        );
        let config = serde_json::from_value(json!({"deny": ["*.key"]})).unwrap();
        let fault = tool("t", config, Path::new("."), &HttpClients::default())
            .err()
            .unwrap();
        assert_eq!(fault.path, ["with", "deny"]);
    }

    #[tokio::test]
    async fn urls_are_checked_and_headers_ignored() {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n",
            PNG.len()
        );
        answer = answer.replace("text/html", "text/html; charset=utf-8");
        let bytes = [answer.as_bytes(), PNG].concat();
        let mut server = start_server(Reply::Bytes(bytes)).await;
        let url = format!("http://{}/a/chart.png?key=secret", server.host);
        let shut = fixture(json!({}));
        assert!(
            shut.add(&url)
                .await
                .unwrap_err()
                .ends_with("unless the manifest says `with.allow_private: true`")
        );
        assert!(server.requests.try_recv().is_err());
        let open = fixture(json!({"allow_private": true}));
        let text = format!(
            "http://{}/a/chart.png: image/png, 640x480 pixels, 29 B",
            server.host
        );
        assert_eq!(open.add(&url).await, Ok(picture(PNG, "image/png", &text)));
        let listed = fixture(json!({"allow_private": true, "allow_hosts": ["pictures.example"]}));
        assert_eq!(
            listed.fault(&url).unwrap(),
            "`source` must be on one of these hosts: pictures.example."
        );
        let gone = start_server(Reply::Bytes(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
        ))
        .await;
        assert_eq!(
            open.add(&format!("http://{}/x.png", gone.host)).await,
            Err("HTTP 404: Not Found".into())
        );
    }

    #[tokio::test]
    async fn larger_pictures_are_rejected() {
        let images =
            fixture(json!({"root": "pictures", "max_bytes": "28B", "allow_private": true}));
        images.write("a.png", PNG);
        let file = images.add("a.png").await.unwrap_err();
        assert_eq!(file, "`a.png` is longer than 28 B (`with.max_bytes`)");
        let uri = images
            .add(&format!("data:;base64,{}", BASE64.encode(PNG)))
            .await
            .unwrap_err();
        assert_eq!(uri, "the picture is larger than 28 B (`with.max_bytes`)");
        for head in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 29\r\n\r\n",
        ] {
            let server = start_server(Reply::Endless(head)).await;
            let error = images
                .add(&format!("http://{}/", server.host))
                .await
                .unwrap_err();
            assert!(
                error.ends_with("answered more than 28 B: ask for less, or raise `with.max_bytes`"),
                "{error}"
            );
        }
    }

    #[test]
    fn invalid_settings_are_rejected() {
        for (with, key) in [
            (json!({"root": "no/such"}), "with.root"),
            (json!({"max_bytes": "21MiB"}), "with.max_bytes"),
            (json!({"allow_hosts": []}), "with.allow_hosts"),
            (
                json!({"allow_hosts": ["a.example", "http://b"]}),
                "with.allow_hosts.1",
            ),
        ] {
            let config = serde_json::from_value(with).unwrap();
            let fault = tool("t", config, Path::new("/tmp"), &HttpClients::default())
                .err()
                .unwrap();
            assert_eq!(fault.path.join("."), key);
        }
        assert!(serde_json::from_value::<Config>(json!({"rot": 1})).is_err());
    }
}
