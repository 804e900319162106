//! Checks the data of images, sound and files in a result: data that is not base64 is not passed
//! on. One invalid block would make MCP clients and providers refuse the whole result.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use base64::read::DecoderReader;
use data_url::forgiving_base64;

use crate::call::{Content, Resource, ToolResult};
use crate::secrets::Redactor;

/// Converts data to the standard form (RFC 4648, section 4): with padding and without line breaks.
/// A block becomes a text if its data is not base64, or if its bytes hold a secret: without the
/// secret it would be a damaged file. Returns one sentence for each replaced block.
pub(super) fn check_media(result: &mut ToolResult, redactor: &Redactor) -> Vec<String> {
    replace_invalid_blocks(result, |data| {
        let has_secret = match redactor.is_secret_in(DecoderReader::new(data.as_bytes(), &BASE64)) {
            Ok(has_secret) => has_secret,
            Err(_) => {
                let bytes = forgiving_base64::decode_to_vec(data.as_bytes())
                    .map_err(|_| "its data is not base64")?;
                *data = BASE64.encode(&bytes);
                redactor.is_secret_in(&*bytes).unwrap_or_default()
            }
        };
        if has_secret {
            Err("a secret is in its data")
        } else {
            Ok(())
        }
    })
}

fn replace_invalid_blocks(
    result: &mut ToolResult,
    check: impl Fn(&mut String) -> Result<(), &'static str>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (at, block) in result.content.iter_mut().enumerate() {
        let (kind, data) = match block {
            Content::Text { .. }
            | Content::ResourceLink(_)
            | Content::Resource {
                resource: Resource { blob: None, .. },
            } => continue,
            Content::Image { data, .. } => ("image", data),
            Content::Audio { data, .. } => ("audio", data),
            Content::Resource {
                resource: Resource {
                    blob: Some(blob), ..
                },
            } => ("resource", blob),
        };
        let Err(reason) = check(data) else { continue };
        warnings.push(format!(
            "content.{at}: the {kind} block is left out: {reason}"
        ));
        *block = Content::text(format!("[{kind}: left out, {reason}]"));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Redactor;

    fn blocks(data: &str) -> ToolResult {
        let (data, mime_type) = (|| data.to_owned(), || "x/y".to_owned());
        let resource = Resource {
            uri: "f:///a".into(),
            blob: Some(data()),
            ..Resource::default()
        };
        let content = vec![
            Content::text("words"),
            Content::Image {
                data: data(),
                mime_type: mime_type(),
            },
            Content::Audio {
                data: data(),
                mime_type: mime_type(),
            },
            Content::Resource { resource },
        ];
        ToolResult {
            content,
            ..ToolResult::default()
        }
    }

    #[test]
    fn base64_is_normalized() {
        let long = BASE64.encode(vec![7; 5000]);
        for (data, standard) in [
            ("", ""),
            ("aGk=", "aGk="),
            ("aGk", "aGk="),
            ("a\nG k=\r\n", "aGk="),
            ("aGl=", "aGk="),
            (&long, &long),
        ] {
            let mut result = blocks(data);
            assert_eq!(
                check_media(&mut result, &Redactor::default()),
                Vec::<String>::new(),
                "{data}"
            );
            assert_eq!(result, blocks(standard));
        }
    }

    #[test]
    fn invalid_base64_becomes_a_text_block() {
        for data in [
            "not base64!!",
            "a",
            "aGk=aGk=",
            "data:image/png;base64,aGk=",
            "_-_-",
        ] {
            let mut result = blocks(data);
            assert_eq!(
                check_media(&mut result, &Redactor::default()).len(),
                3,
                "{data}"
            );
            let words = [
                "words",
                "[image: left out,",
                "[audio: left out,",
                "[resource: left out,",
            ];
            let text = result.as_text();
            assert!(
                text.lines()
                    .zip(words)
                    .all(|(line, start)| line.starts_with(start)),
                "{text}"
            );
        }
    }

    #[test]
    fn media_with_a_secret_becomes_text() {
        let redactor = Redactor::new(["top-secret-word"]);
        let utf_16: Vec<u8> = "top-secret-word"
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        for before in 0..3 {
            for secret in [
                b"top-secret-word".as_slice(),
                &utf_16,
                hex::encode("top-secret-word").as_bytes(),
            ] {
                let bytes = [&vec![0xff; before][..], secret, b"\xff"].concat();
                let mut result = blocks(&BASE64.encode(&bytes));
                let warnings = check_media(&mut result, &redactor);
                assert_eq!(
                    warnings[0],
                    "content.1: the image block is left out: a secret is in its data"
                );
                assert_eq!((warnings.len(), result.as_text().lines().count()), (3, 4));
            }
        }
        // The secret crosses the blocks in which long data is read, and data that must be converted
        // first.
        for at in [(64 << 10) - 7, (128 << 10) - 20] {
            let bytes = [&vec![0; at][..], b"top-secret-word", &[0; 9]].concat();
            assert_eq!(
                check_media(&mut blocks(&BASE64.encode(&bytes)), &redactor).len(),
                3,
                "{at}"
            );
            assert_eq!(
                check_media(
                    &mut blocks(BASE64.encode(&bytes).trim_end_matches('=')),
                    &redactor
                )
                .len(),
                3,
                "{at}"
            );
        }
        assert!(check_media(&mut blocks(&BASE64.encode("top-secret-ward")), &redactor).is_empty());
    }
}
