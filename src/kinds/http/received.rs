//! The bytes of a response: read up to a cap, decompressed, and converted to UTF-8.

use std::io::{ErrorKind, Read};

use encoding_rs::{Encoding, UTF_8};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::client::{Response, host_and_port, request_error};
use crate::call::media_type::media_type_essence;
use crate::call::{CutEnds, SurroundedPart, ToolContext, ToolError};

/// How much of a decompressed body after the cap is kept. It shows secrets that lie across the end.
const EXCESS_BYTES: usize = 64 * 1024;
/// Where a document may name its own encoding (HTML, 13.2.3.2).
const DECLARATION_BYTES: usize = 1024;

/// The bytes of a response, up to the cap.
pub(super) struct CappedBody {
    pub(super) bytes: Vec<u8>,
    /// The bytes beyond the cap that arrived in the same chunk. `None` if the body does not exceed
    /// the cap.
    pub(super) excess: Option<Vec<u8>>,
}

impl CappedBody {
    /// Reads at most `cap` bytes, and decompresses them to at most `cap` bytes. The response is
    /// dropped at the end, which closes the connection if the body was not read completely.
    pub(super) async fn read(response: Response, cap: usize) -> Result<Self, ToolError> {
        let host = host_and_port(response.url());
        let coding = content_coding(&response);
        let body = Self::read_raw(response, cap)
            .await
            .map_err(|error| request_error(&host, error))?;
        match coding {
            None => Ok(body),
            Some(coding) => body.decompress(&coding, cap).map_err(|fault| {
                ToolError::BadOutput(format!(
                    "its server answered in content-encoding {coding}, {fault}"
                ))
            }),
        }
    }

    async fn read_raw(mut response: Response, cap: usize) -> Result<Self, hyper::Error> {
        let mut bytes = Vec::new();
        while let Some(mut chunk) = response.chunk().await? {
            let room = cap - bytes.len();
            if chunk.len() > room {
                bytes.extend_from_slice(&chunk.split_to(room));
                return Ok(Self {
                    bytes,
                    excess: Some(chunk.into()),
                });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Self {
            bytes,
            excess: None,
        })
    }

    /// Requests do not ask for compression, but some servers always compress.
    fn decompress(self, coding: &str, cap: usize) -> Result<Self, &'static str> {
        let is_cut = self.excess.is_some();
        let packed = [self.bytes, self.excess.unwrap_or_default()].concat();
        if packed.is_empty() {
            return Ok(Self {
                bytes: packed,
                excess: None,
            });
        }
        // A zlib header is a multiple of 31 (RFC 1950, 2.2). Some servers send the bare stream.
        let is_zlib = packed.len() > 1 && u16::from_be_bytes([packed[0], packed[1]]) % 31 == 0;
        let reader: Box<dyn Read> = match coding {
            "gzip" | "x-gzip" => Box::new(MultiGzDecoder::new(&*packed)),
            "deflate" if is_zlib => Box::new(ZlibDecoder::new(&*packed)),
            "deflate" => Box::new(DeflateDecoder::new(&*packed)),
            _ => return Err("which was not requested; only gzip and deflate are read"),
        };
        let mut bytes = Vec::new();
        match reader
            .take((cap + EXCESS_BYTES) as u64)
            .read_to_end(&mut bytes)
        {
            Ok(_) => {}
            Err(error) if is_cut && error.kind() == ErrorKind::UnexpectedEof => {}
            Err(_) => return Err("but the body cannot be decompressed"),
        }
        let excess = (bytes.len() > cap).then(|| bytes.split_off(cap));
        Ok(Self {
            bytes,
            excess: excess.or(is_cut.then(Vec::new)),
        })
    }

    /// Converts text in another encoding to at most `cap` bytes of UTF-8. `content_type` is the
    /// header of the response.
    pub(super) fn into_utf8(
        self,
        content_type: Option<&str>,
        host: &str,
        cap: usize,
        mut warn: impl FnMut(String),
    ) -> Self {
        let (encoding, mark) = match Encoding::for_bom(&self.bytes) {
            Some((encoding, mark)) => (encoding, mark),
            None => match declared_charset(content_type, &self.bytes) {
                None => (UTF_8, 0),
                // The replacement encoding would decode the whole text to one U+FFFD.
                Some(label) => match Encoding::for_label_no_replacement(label.as_bytes()) {
                    Some(encoding) => (encoding, 0),
                    None => {
                        let label: String = label.chars().take(40).collect();
                        warn(format!(
                            "the answer of `{host}` is in the charset {label}, which is not known; it was read as UTF-8"
                        ));
                        (UTF_8, 0)
                    }
                },
            },
        };
        let Self { mut bytes, excess } = self;
        bytes.drain(..mark);
        let (body, has_errors) = if encoding == UTF_8 {
            let has_errors =
                std::str::from_utf8(&bytes).is_err_and(|error| error.error_len().is_some());
            (Self { bytes, excess }, has_errors)
        } else {
            Self { bytes, excess }.transcode(encoding, cap)
        };
        if has_errors {
            let name = encoding.name();
            warn(format!(
                "the answer of `{host}` is not {name}: invalid bytes are shown as \u{fffd}"
            ));
        }
        body
    }

    /// The body in UTF-8, and whether some bytes were invalid.
    fn transcode(self, encoding: &'static Encoding, cap: usize) -> (Self, bool) {
        let mut decoder = encoding.new_decoder_without_bom_handling();
        let mut has_errors = false;
        let mut decode = |bytes: &[u8], is_last| {
            let length = decoder
                .max_utf8_buffer_length(bytes.len())
                .unwrap_or_default();
            let mut text = String::with_capacity(length);
            let (.., replaced) = decoder.decode_to_string(bytes, &mut text, is_last);
            has_errors |= replaced;
            text
        };
        let mut text = decode(&self.bytes, self.excess.is_none());
        let mut excess = self.excess.map(|excess| decode(&excess, false));
        if text.len() > cap {
            let rest = text.split_off(text.floor_char_boundary(cap));
            excess = Some(rest + &excess.unwrap_or_default());
        }
        let body = Self {
            bytes: text.into_bytes(),
            excess: excess.map(String::into_bytes),
        };
        (body, has_errors)
    }

    /// The body as JSON parsers expect it. JSON is UTF-8 (RFC 8259, 8.1), whatever charset the
    /// header names, but some servers send another encoding.
    pub(super) fn into_json_text(
        self,
        content_type: Option<&str>,
        host: &str,
        cap: usize,
        warn: impl FnMut(String),
    ) -> Vec<u8> {
        let is_utf8 = std::str::from_utf8(&self.bytes).is_ok() && !self.bytes.contains(&0);
        match is_utf8 || Encoding::for_bom(&self.bytes).is_none() && charset(content_type).is_none()
        {
            true => self.bytes,
            false => self.into_utf8(content_type, host, cap, warn).bytes,
        }
    }

    /// The bytes as text. If the body was cut, the redactor also sees the bytes after the cut, so
    /// that it finds a secret that crosses the cut. It sees only the bytes that arrived in the same
    /// chunk: more bytes would have to be waited for.
    pub(super) fn text(&self, context: &ToolContext) -> String {
        match &self.excess {
            Some(rest) => {
                let after = &rest[..rest.len().min(context.max_secret_len())];
                context.excerpt_between(SurroundedPart {
                    before: &[],
                    part: &self.bytes,
                    after,
                    cut_ends: CutEnds::END,
                })
            }
            None => String::from_utf8_lossy(&self.bytes).into_owned(),
        }
    }
}

/// Reads a body of at most `cap` bytes as text in UTF-8, for a parser. `None` if it is longer.
///
/// # Errors
/// The response ended early, or cannot be decompressed.
pub(crate) async fn read_whole_text(
    response: Response,
    cap: usize,
) -> Result<Option<Vec<u8>>, ToolError> {
    let (content_type, host) = (content_type(&response), host_and_port(response.url()));
    let body = CappedBody::read(response, cap).await?;
    let body = Some(body).filter(|body| body.excess.is_none());
    Ok(body.map(|body| body.into_json_text(content_type.as_deref(), &host, cap, |_| {})))
}

/// Reads a body of at most `cap` bytes as it is sent. `None` if it is longer.
pub(crate) async fn read_whole(
    response: Response,
    cap: usize,
) -> Result<Option<Vec<u8>>, hyper::Error> {
    let body = CappedBody::read_raw(response, cap).await?;
    Ok(body.excess.is_none().then_some(body.bytes))
}

/// The coding of the body. Some servers name a charset instead, or that there is no coding.
fn content_coding(response: &Response) -> Option<String> {
    let codings = response.headers().get_all(CONTENT_ENCODING).iter();
    let codings: Vec<String> = codings
        .flat_map(|value| value.to_str().unwrap_or("unreadable").split(','))
        .map(|coding| coding.trim().to_ascii_lowercase())
        .filter(|coding| !matches!(&**coding, "" | "identity" | "none" | "binary"))
        .filter(|coding| Encoding::for_label(coding.as_bytes()).is_none())
        .collect();
    Some(codings.join(", ")).filter(|codings| !codings.is_empty())
}

/// The text of the header `Content-Type`.
pub(super) fn content_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?;
    value.to_str().ok().map(str::to_owned)
}

/// The parameter `charset` of a media type.
fn charset(content_type: Option<&str>) -> Option<&str> {
    let parameters = content_type?.split(';').skip(1);
    let value = parameters
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?
        .1;
    Some(value.trim().trim_matches(['"', '\''])).filter(|label| !label.is_empty())
}

/// The encoding that the header names, or else the document itself, if it is XML or HTML.
fn declared_charset(content_type: Option<&str>, bytes: &[u8]) -> Option<String> {
    if let Some(label) = charset(content_type) {
        return Some(label.to_owned());
    }
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(DECLARATION_BYTES)]);
    let start = start.trim_start().to_ascii_lowercase();
    let is_html = media_type_essence(content_type?).eq_ignore_ascii_case("text/html");
    let declaration = match start.strip_prefix("<?xml") {
        Some(declaration) => declaration.split_once("?>")?.0.split_once("encoding")?.1,
        None if is_html => start.split_once("charset")?.1,
        None => return None,
    };
    let value = declaration.trim_start().strip_prefix('=')?.trim_start();
    let value = value.trim_start_matches(['"', '\'']);
    let end = value.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.+".contains(c)));
    Some(value[..end?].to_owned()).filter(|label| !label.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_charset_is_found() {
        for (content_type, body, expected) in [
            ("text/csv; charset=windows-1252", "", Some("windows-1252")),
            (
                "text/csv; header=present; Charset=\"UTF-16\"",
                "",
                Some("UTF-16"),
            ),
            ("text/csv; charset=", "", None),
            (
                "application/xml",
                "<?xml version='1.0' encoding='ISO-8859-1'?><a/>",
                Some("iso-8859-1"),
            ),
            (
                "application/xml",
                "<?xml version='1.0'?><a encoding='latin1'/>",
                None,
            ),
            (
                "text/html",
                "<html><meta charset=shift_jis>",
                Some("shift_jis"),
            ),
            (
                "text/html",
                "<meta content=\"text/html; charset=koi8-r\">",
                Some("koi8-r"),
            ),
            ("text/plain", "<meta charset=shift_jis>", None),
        ] {
            let found = declared_charset(Some(content_type), body.as_bytes());
            assert_eq!(found.as_deref(), expected, "{content_type} {body}");
        }
    }

    #[test]
    fn text_grows_only_up_to_the_cap() {
        let latin = Encoding::for_label(b"latin1").unwrap();
        let body = CappedBody {
            bytes: vec![0xfc; 6],
            excess: None,
        };
        let (body, has_errors) = body.transcode(latin, 5);
        assert_eq!((&*body.bytes, has_errors), ("üü".as_bytes(), false));
        assert_eq!(body.excess.as_deref(), Some("üüüü".as_bytes()));
        // Half of a character at the cut belongs to the rest.
        let sjis = Encoding::for_label(b"shift_jis").unwrap();
        let body = CappedBody {
            bytes: b"\x93\xfa\x96".to_vec(),
            excess: Some(b"\x7b".to_vec()),
        };
        let (body, has_errors) = body.transcode(sjis, 100);
        assert_eq!((&*body.bytes, has_errors), ("日".as_bytes(), false));
        assert_eq!(body.excess.as_deref(), Some("本".as_bytes()));
    }

    #[test]
    fn decompressed_body_is_capped() {
        use std::io::Write;

        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&vec![b'a'; 4 << 20]).unwrap();
        let packed = packed.finish().unwrap();
        let body = |length: usize| CappedBody {
            bytes: packed[..length].to_vec(),
            excess: None,
        };
        let whole = body(packed.len()).decompress("gzip", 1000).unwrap();
        assert_eq!(
            (whole.bytes.len(), whole.excess.map(|rest| rest.len())),
            (1000, Some(EXCESS_BYTES))
        );
        assert!(
            body(packed.len() - 100)
                .decompress("gzip", 5 << 20)
                .is_err()
        );
        let cut = CappedBody {
            excess: Some(Vec::new()),
            ..body(packed.len() - 100)
        };
        assert!(cut.decompress("gzip", 5 << 20).unwrap().excess.is_some());
        assert!(body(20).decompress("br", 1000).is_err());
    }

    #[test]
    fn deflate_is_read_with_and_without_its_header() {
        use std::io::Write;

        let text = b"a text, a text, a text";
        let level = flate2::Compression::best();
        let mut with_header = flate2::write::ZlibEncoder::new(Vec::new(), level);
        with_header.write_all(text).unwrap();
        let mut bare = flate2::write::DeflateEncoder::new(Vec::new(), level);
        bare.write_all(text).unwrap();
        for bytes in [with_header.finish().unwrap(), bare.finish().unwrap()] {
            let body = CappedBody {
                bytes,
                excess: None,
            };
            assert_eq!(body.decompress("deflate", 1000).unwrap().bytes, text);
        }
    }
}
