//! The words about keys that no part of the program reads.

use crate::text::suggest;

/// Keys that other programs have, or that belong elsewhere: the keys, a known key of the place where
/// they are not known, and what to write.
const ADVICE: &[(&str, &str, &str)] = &[
    ("optional", "minLength", "write `required: false`"),
    ("values choices", "minLength", "write `enum: [a, b]`"),
    (
        "$defs definitions $schema",
        "minLength",
        "a parameter has no definitions of its own: write the whole schema below `input_schema:`",
    ),
    (
        "url",
        "request",
        "it belongs below `request`: `request: {url: …}`",
    ),
    (
        "method headers query body json form allow_private",
        "request",
        "it belongs below `request`, beside its `url`",
    ),
    ("pick error_when", "request", "it belongs below `response`"),
    (
        "args arguments",
        "command",
        "write the arguments in `command`, after the program: `command: [wc, -w]`",
    ),
    ("cwd", "workdir", "write `workdir`"),
    (
        "cwd",
        "command",
        "the working folder is the manifest's folder",
    ),
    (
        "cwd",
        "module",
        "the working folder is the manifest's folder",
    ),
    (
        "type transport",
        "trust_hints",
        "leave it out: `url` or `command` says how the server is reached",
    ),
    ("query sql", "statement", "write `statement`"),
    (
        "url",
        "statement",
        "write `database`, e.g. `database: sqlite://shop.db`",
    ),
    (
        "url",
        "document",
        "write `document` for the OpenAPI document, `base_url` for the address of the API",
    ),
    ("file spec", "document", "write `document`"),
    ("file path", "functions", "write `module`"),
    (
        "port host",
        "listen",
        "it is part of `listen`: `listen: 127.0.0.1:7411`",
    ),
    ("cors", "allowed_origins", "write `allowed_origins`"),
    ("path file", "durability", "write `url: sqlite://FILE`"),
    ("api_key token", "key_sha256", "write `key`"),
    ("tools", "key_sha256", "write `allow`"),
    ("system instructions", "coworkers", "write `prompt`"),
    ("api_key", "base_url", "write `key`"),
    ("url", "base_url", "write `base_url`"),
    ("model", "base_url", "write `name`"),
    (
        "<<",
        "",
        "YAML's merge keys are not supported: write the keys of the other map here",
    ),
];

/// What to write in place of a key that is not among `known`.
pub(crate) fn unknown_key_message<S: AsRef<str>>(key: &str, known: &[S]) -> String {
    let is_known = |name: &str| known.iter().any(|known| known.as_ref() == name);
    let advice = ADVICE.iter().find(|(slips, beside, _)| {
        slips.split(' ').any(|slip| slip == key) && (beside.is_empty() || is_known(beside))
    });
    if let Some((.., advice)) = advice {
        return format!("unknown key; {advice}");
    }
    match suggest::closest_name(
        key,
        known.iter().map(AsRef::as_ref),
        suggest::MIN_HINT_RATIO,
    ) {
        Some(near) => format!("unknown key, did you mean {near}?"),
        None => {
            let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
            format!("unknown key; there are {}", known.join(", "))
        }
    }
}

/// Whether a message about an unknown key advises to write `key`.
pub(crate) fn suggests_key(message: &str, key: &str) -> bool {
    message.contains(&format!("did you mean {key}?")) || message.contains(&format!("`{key}`"))
}
