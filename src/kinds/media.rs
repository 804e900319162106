//! Turns bytes into content of a result: a picture, a sound or a file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::call::{Content, Resource};

/// The media type of PDF (RFC 8118).
const PDF: &str = "application/pdf";

/// The number of first bytes that are enough to recognize a type.
pub(super) const SNIFF_BYTES: usize = 12;

/// The media type of a picture that models accept, or of a PDF document, by the first bytes; `None`
/// for anything else. Names and headers may be wrong. The signatures are from the WHATWG's MIME
/// Sniffing Standard, 6.1 and 6.2.
pub(super) fn sniff_media_type(bytes: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(&[u8], &str); 5] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", PDF),
    ];
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    let mut known = SIGNATURES.into_iter();
    let (_, media_type) = known.find(|(start, _)| bytes.starts_with(start))?;
    Some(media_type)
}

/// The content for these bytes. A file that is valid text becomes text, except a PDF, whose source
/// text is not for reading.
pub(super) fn content_block(mime_type: &str, bytes: Vec<u8>, uri: String) -> Content {
    let (data, mime_type) = (|| BASE64.encode(&bytes), mime_type.to_owned());
    match mime_type.split('/').next() {
        Some("image") => Content::Image {
            data: data(),
            mime_type,
        },
        Some("audio") => Content::Audio {
            data: data(),
            mime_type,
        },
        _ => {
            let text = std::str::from_utf8(&bytes)
                .ok()
                .filter(|text| mime_type != PDF && !text.contains('\0'));
            let (text, blob) = match text {
                Some(text) => (Some(text.to_owned()), None),
                None => (None, Some(data())),
            };
            Content::Resource {
                resource: Resource {
                    uri,
                    mime_type: Some(mime_type),
                    text,
                    blob,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_comes_from_first_bytes() {
        for (bytes, expected) in [
            (b"\x89PNG\r\n\x1a\nrest".as_slice(), Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF87a", Some("image/gif")),
            (b"GIF89a;", Some("image/gif")),
            (b"RIFF\x24\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"%PDF-1.7", Some("application/pdf")),
            // Sound, a picture that no provider accepts, text, and signatures that were cut or
            // converted in transit.
            (b"RIFF\x24\0\0\0WAVEfmt ", None),
            (b"BM\x46\0\0\0", None),
            (b"<svg xmlns=", None),
            (b"\x89PNG\n\x1a\n", None),
            (b"GIF8", None),
            (b"", None),
        ] {
            assert_eq!(sniff_media_type(bytes), expected, "{bytes:?}");
            assert!(
                expected.is_none()
                    || bytes.len() < SNIFF_BYTES
                    || sniff_media_type(&bytes[..SNIFF_BYTES]) == expected
            );
        }
    }

    #[test]
    fn valid_text_file_becomes_text() {
        let file = |mime_type: &str, bytes: &[u8]| match content_block(
            mime_type,
            bytes.into(),
            "file:///x".into(),
        ) {
            Content::Resource { resource } => (resource.text, resource.blob),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            file("application/rtf", b"{\\rtf1"),
            (Some("{\\rtf1".into()), None)
        );
        assert_eq!(
            file("application/pdf", b"%PDF-1.7"),
            (None, Some("JVBERi0xLjc=".into()))
        );
        assert_eq!(
            file("application/zip", b"PK\x03\xff"),
            (None, Some("UEsD/w==".into()))
        );
        assert_eq!(
            file("application/x-tar", b"a\0b"),
            (None, Some("YQBi".into()))
        );
    }
}
