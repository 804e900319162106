//! Reads `approvals:` of a manifest.

use url::Url;

use super::callers::check_caller_name;
use super::decode::Entry;
use super::sections::{Approvals, Notify};
use crate::access::WebhookSecret;
use crate::access::public_url::PublicUrl;
use crate::approval::receivers::{ApprovalNotices, Receiver};

/// The receivers of the section, and findings about those that cannot be used.
pub(super) fn read_approvals(
    root: Entry<'_>,
    section: Approvals,
    public_url: Option<&PublicUrl>,
) -> Option<ApprovalNotices> {
    if section.notify.is_empty() {
        return None;
    }
    let mut receivers: Vec<Receiver> = Vec::new();
    for (index, entry) in section.notify.iter().enumerate() {
        match read_receiver(entry, &receivers) {
            Ok(receiver) => receivers.push(receiver),
            Err((key, message)) => {
                root.error(&["approvals", "notify", &index.to_string(), key], message);
            }
        }
    }
    let Some(public_url) = public_url else {
        // A value that cannot be used has a finding of its own.
        if root
            .get("server")
            .is_some_and(|one| one.get("public_url").is_some())
        {
            return None;
        }
        let message = "webhooks contain a link to this service: set server.public_url, e.g. \
                       https://tools.example.com";
        root.error(&["approvals", "notify"], message);
        return None;
    };
    Some(ApprovalNotices {
        public_url: public_url.clone(),
        receivers,
    })
}

/// The key at fault, and what is expected there.
type Fault = (&'static str, &'static str);

fn read_receiver(entry: &Notify, others: &[Receiver]) -> Result<Receiver, Fault> {
    let url = Url::parse(&entry.url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or(("url", "an http or https URL is expected"))?;
    let secret = WebhookSecret::parse(&entry.secret).map_err(|message| ("secret", message))?;
    let host = url.host_str().unwrap_or_default();
    let name = entry.name.as_deref().unwrap_or(host);
    if check_caller_name(name).is_some() {
        let message = "a receiver's name has 1 to 128 characters of A-Z a-z 0-9 _ - . @";
        return Err(("name", message));
    }
    if others.iter().any(|other| *other.name == *name) {
        let message = "two receivers have this name: give each a `name` of its own";
        return Err(("name", message));
    }
    let name = name.into();
    Ok(Receiver { name, url, secret })
}

#[cfg(test)]
mod tests {
    use super::super::testing::load_text;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn errors(notify: &str) -> Vec<String> {
        let text =
            format!("server: {{public_url: 'https://t.test'}}\napprovals: {{notify: {notify}}}\n");
        load_text(&text).err().unwrap_or_default()
    }

    #[test]
    fn receivers_have_names_and_secrets() {
        let text = format!(
            "server: {{public_url: 'https://t.test/x'}}\napprovals:\n  notify:\n    \
             - {{url: 'https://chat.test/h', secret: {SECRET}}}\n    \
             - {{url: 'https://chat.test/i', secret: {SECRET}, name: mail}}\n"
        );
        let notices = load_text(&text).unwrap().approvals.unwrap();
        let names: Vec<&str> = notices.receivers.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["chat.test", "mail"]);
        assert_eq!(notices.public_url.join(""), "https://t.test/x/");
    }

    #[test]
    fn unusable_receivers_are_explained() {
        let one = format!("{{url: 'https://c.test', secret: {SECRET}}}");
        for (notify, expected) in [
            ("[{url: c.test, secret: x}]".to_owned(), "http or https URL"),
            (
                "[{url: 'https://c.test', secret: short}]".to_owned(),
                "openssl rand -base64 32",
            ),
            (format!("[{one}, {one}]"), "`name` of its own"),
            (
                format!("[{{url: 'https://c.test', secret: {SECRET}, name: 'a b'}}]"),
                "A-Z a-z 0-9",
            ),
        ] {
            let errors = errors(&notify);
            assert!(
                errors.len() == 1 && errors[0].contains(expected),
                "{notify}: {errors:?}"
            );
        }
        let without_url = load_text(&format!("approvals: {{notify: [{one}]}}\n"));
        assert!(without_url.err().unwrap()[0].contains("set server.public_url"));
        let bad_url = load_text("server: {public_url: 'https://t.test/?x=1'}\n");
        assert!(bad_url.err().unwrap()[0].contains("server.public_url"));
    }
}
