//! The URL of a request: the URL of the manifest, with values in its path and query, and perhaps in its host.
//!
//! The URL is split before it is filled in, and each value is encoded for its part. So a value cannot extend into the
//! next part. Scheme and port are fixed. The host is fixed, or one of a list. The base is a URL that is parsed when
//! the tool is built.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;
use url::{Host, Position, Url};

use super::address_policy::Denied;
use super::config::{Diagnostics, RequestConfig};
use super::path_value::{self, LAYERS, LONGEST, Misfit};
use crate::call::ToolError;
use crate::tools::template::{Part, Template, plain_text};
use crate::tools::{Fault, Placeholder, Values};

/// All characters except the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const URL: &[&str] = &["request", "url"];

/// The URL of the manifest, with its placeholders.
pub(super) struct Target {
    base: Base,
    path: Template,
    /// The start of every path: the literal text before the first placeholder, encoded.
    prefix: String,
    /// Path segments that contain a value beside other text. They are checked as a whole, because `.` and `..` may
    /// arise from several parts.
    mixed: Vec<Template>,
    query: Template,
}

/// Scheme, host and port.
enum Base {
    Fixed(Url),
    /// The host has a placeholder. The filled-in host must be one of this list.
    Listed {
        host: Template,
        hosts: Vec<(String, Url)>,
    },
}

impl Target {
    /// Reads `request.url` and `allow_hosts`, and adds their faults to the notebook.
    pub(super) fn parse(config: &RequestConfig, notes: &mut Diagnostics<'_>) -> Option<Self> {
        let whole = notes.template(&config.url, URL)?;
        let odd = |c: char| c == '\\' || c.is_whitespace() || c.is_control();
        if whole.parts().iter().any(|part| matches!(part, Part::Text(text) if text.contains(odd))) {
            notes.error(URL, "white space, control characters and `\\` have no place in a URL");
        }
        // A placeholder contains no character that separates the parts of a URL. So the raw text can be split.
        let Some((scheme @ ("http" | "https"), rest)) = config.url.split_once("://") else {
            notes.error(URL, "the URL begins with a literal http:// or https://");
            return None;
        };
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(rest, end)| (rest, Some(end)));
        if fragment.is_some() {
            notes.error(URL, "`#…` is never sent: leave it out");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mixed = path.split('/').filter_map(|text| mixed_segment(text, notes)).collect();
        let path = Self::path(path, notes);
        let (base, path) = (Base::parse(scheme, authority, config, notes)?, path?);
        let literal = match path.parts().first() {
            Some(Part::Text(text)) => text,
            Some(Part::Value(_)) | None => "",
        };
        let mut start = base.any()?.clone();
        start.set_path(literal);
        Some(Self { prefix: start.path().to_owned(), base, path, mixed, query: notes.part(query)? })
    }

    fn path(text: &str, notes: &mut Diagnostics<'_>) -> Option<Template> {
        match path_value::check_segments(text) {
            Err(Misfit::Dots) => notes.error(URL, "`.` and `..` in the path: write the path that is meant"),
            Err(Misfit::TooManyLayers) => {
                notes
                    .error(URL, format!("the path is percent-encoded more than {LAYERS} times: write it encoded once"));
            }
            Ok(()) | Err(Misfit::TooLong) => {}
        }
        let path = notes.part(text)?;
        if let Some(name) = notes.optional(&path) {
            let message = format!("the path needs `{name}`, so a call without it is refused: make it required");
            notes.warning(URL, message);
        }
        Some(path)
    }

    /// Reports the hosts that the client is known to refuse. `admits` is the client's check of a URL.
    pub(super) fn check(
        &self,
        admits: impl Fn(&Url) -> Result<(), Denied>,
        has_roots: bool,
        notes: &mut Diagnostics<'_>,
    ) {
        for url in self.base.all() {
            if let Err(denied) = admits(url) {
                notes.out_of_reach(URL, denied.to_string());
            }
        }
        if !has_roots && self.base.any().is_some_and(|url| url.scheme() == "https") {
            notes.warning(URL, super::client::NO_ROOTS);
        }
    }

    /// Whether all requests go to the same host.
    pub(super) fn has_one_host(&self) -> bool {
        match &self.base {
            Base::Fixed(_) => true,
            Base::Listed { hosts, .. } => hosts.len() == 1,
        }
    }

    /// Faults of values that a server would misread at their position in the URL.
    pub(super) fn faults(&self, values: Values<'_>) -> Vec<Fault> {
        let mut faults = Vec::new();
        for name in self.path.placeholders() {
            let text = match values.get(name) {
                Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
                other => Cow::Owned(other.map(plain_text).unwrap_or_default()),
            };
            if let (Placeholder::Context(field), None | Some(Value::Null)) = (name, values.get(name)) {
                let message = format!("`{name}` stands in the path of a URL, so `context` must have `{field}`.");
                faults.push(name.fault("format", message));
            } else if text.is_empty() {
                let message = format!("`{name}` stands in the path of a URL and must not be empty.");
                faults.push(name.fault("format", message));
            } else if let Err(misfit) = path_value::check(&text) {
                faults.push(in_path(name, misfit));
            }
        }
        // Checked only if each value is permitted by itself, because then the length of the segment is bounded.
        if faults.is_empty() {
            for segment in &self.mixed {
                if let Err(misfit) = path_value::check_segments(&segment.render(values, plain_text)) {
                    faults.extend(segment.placeholders().map(|name| in_path(name, misfit)));
                }
            }
        }
        if let Base::Listed { host, hosts } = &self.base
            && self.base.resolve(values).is_none()
        {
            let known: Vec<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("There is no such host to ask. The hosts are: {}.", known.join(", "));
            faults.extend(host.placeholders().map(|name| name.fault("format", message.clone())));
        }
        faults
    }

    /// The URL for these values. `pairs` are added after the query of the manifest.
    pub(super) fn render(&self, values: Values<'_>, pairs: &[(&str, String)]) -> Result<Url, ToolError> {
        let encoded = |value: &Value| encode(&plain_text(value));
        let base = self.base.resolve(values).ok_or_else(strayed)?;
        let mut url = base.clone();
        url.set_path(&self.path.render(values, encoded));
        let own = Some(self.query.render(values, encoded)).filter(|own| !own.is_empty());
        let more = pairs.iter().map(|(name, text)| format!("{}={}", encode(name), encode(text)));
        let query: Vec<String> = own.into_iter().chain(more).collect();
        if !query.is_empty() {
            url.set_query(Some(&query.join("&")));
        }
        // The encoding already ensures this. It is checked again because otherwise the operator's credentials would
        // go to another server.
        let kept = url[..Position::BeforePath] == base[..Position::BeforePath] && url.path().starts_with(&self.prefix);
        if kept { Ok(url) } else { Err(strayed()) }
    }
}

impl Base {
    fn parse(scheme: &str, authority: &str, config: &RequestConfig, notes: &mut Diagnostics<'_>) -> Option<Self> {
        if authority.contains('@') {
            notes.error(URL, "no user and password in the URL: send an `authorization` header");
            return None;
        }
        let colon = authority.rfind(':').filter(|&at| !authority[at..].contains(']'));
        let (host, port) = authority.split_at(colon.unwrap_or(authority.len()));
        if port.contains("{{") {
            notes.error(URL, "the port is fixed: no placeholder there");
            return None;
        }
        let bare = |host: &str| match Url::parse(&format!("{scheme}://{host}{port}/")) {
            Ok(url) if url.port() == Some(0) => Err("port 0 cannot be reached".to_owned()),
            Ok(url) => Ok(url),
            Err(error) => Err(error.to_string()),
        };
        let template = notes.part(host)?;
        if let Some(host) = template.literal() {
            if !config.allow_hosts.is_empty() {
                notes.warning(&["request", "allow_hosts"], "has no effect: the URL's host holds no placeholder");
            }
            return bare(host).map(Self::Fixed).map_err(|message| notes.error(URL, message)).ok();
        }
        if config.allow_hosts.is_empty() {
            notes.error(URL, "a placeholder in the host needs `allow_hosts`: the hosts it may turn out to be");
        }
        let mut hosts = Vec::new();
        for (at, name) in config.allow_hosts.iter().enumerate() {
            let path = ["request", "allow_hosts", &at.to_string()];
            match listed_host(name).and_then(|_| bare(name)) {
                Ok(url) => hosts.push((name.to_lowercase(), url)),
                Err(message) => notes.error(&path, message),
            }
        }
        let (fit, other): (Vec<_>, Vec<_>) = hosts.iter().partition(|(name, _)| may_become(&template, name));
        for (name, _) in &other {
            let message = format!("`{name}` is never asked: the URL's host `{host}` cannot become that");
            match fit.is_empty() {
                true => notes.error(&["request", "allow_hosts"], message),
                false => notes.warning(&["request", "allow_hosts"], message),
            }
        }
        Some(Self::Listed { host: template, hosts })
    }

    fn all(&self) -> Box<dyn Iterator<Item = &Url> + '_> {
        match self {
            Self::Fixed(url) => Box::new(std::iter::once(url)),
            Self::Listed { hosts, .. } => Box::new(hosts.iter().map(|(_, url)| url)),
        }
    }

    /// One of the possible bases. They differ only in their host.
    fn any(&self) -> Option<&Url> {
        self.all().next()
    }

    fn resolve(&self, values: Values<'_>) -> Option<&Url> {
        match self {
            Self::Fixed(url) => Some(url),
            Self::Listed { host, hosts } => {
                let wanted = host.render(values, plain_text).to_lowercase();
                hosts.iter().find(|(name, _)| *name == wanted).map(|(_, url)| url)
            }
        }
    }
}

/// Parses an entry of a list of hosts. `url` accepts more characters than a DNS name may contain, such as `*`, so
/// these are checked here.
///
/// # Errors
/// A sentence that says what would be right.
pub(crate) fn listed_host(name: &str) -> Result<Host, String> {
    if name.contains('*') {
        return Err(format!("`{name}` is no host: patterns are not known here; write each host"));
    }
    let host = Host::parse(name).ok().filter(|host| match host {
        Host::Domain(name) => name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        Host::Ipv4(_) | Host::Ipv6(_) => true,
    });
    host.ok_or_else(|| format!("`{name}` is not a host: write a name or an address, without scheme, port and path"))
}

/// Whether the filled-in host can become this name, judged by the text around its placeholders.
fn may_become(host: &Template, name: &str) -> bool {
    let text = |part: Option<&Part>| match part {
        Some(Part::Text(text)) => text.to_lowercase(),
        Some(Part::Value(_)) | None => String::new(),
    };
    let (first, last) = (text(host.parts().first()), text(host.parts().last()));
    name.len() > first.len() + last.len() && name.starts_with(&first) && name.ends_with(&last)
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The fault of a value that is not permitted in a path.
fn in_path(name: &Placeholder, misfit: Misfit) -> Fault {
    let why = match misfit {
        Misfit::TooLong => format!("and has at most {LONGEST} bytes there"),
        Misfit::TooManyLayers => format!("and is percent-encoded more than {LAYERS} times: write it decoded"),
        Misfit::Dots => "where `.` and `..` lead elsewhere".to_owned(),
    };
    let comma = if misfit == Misfit::Dots { "," } else { "" };
    name.fault("format", format!("`{name}` stands in the path of a URL{comma} {why}."))
}

/// A path segment with a placeholder and other text. Its literal text is decoded once, because it is checked together
/// with values that are not encoded yet.
fn mixed_segment(text: &str, notes: &Diagnostics<'_>) -> Option<Template> {
    let template = notes.part(text)?;
    (template.parts().len() > 1)
        .then(|| template.map_text(|text| percent_decode_str(text).decode_utf8_lossy().into_owned()))
}

fn strayed() -> ToolError {
    ToolError::upstream_final("the values lead to another place than the tool's URL")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::{Effect, JsonObject};
    use crate::tools::{BuildContext, Clients, ConfigFault, Databases};

    fn with_notes(use_them: impl FnOnce(&mut Diagnostics<'_>)) -> Vec<ConfigFault> {
        let input_schema =
            json!({"properties": {"x": {}, "y": {}, "z": {}, "host": {}}, "required": ["x", "y", "host"]});
        let base = std::path::Path::new(".");
        let context = BuildContext {
            base,
            input_schema: &input_schema,
            fields: &["tenant".to_owned(), "region".to_owned()],
            effect: Effect::Read,
            trusted: true,
            clients: &Clients::default(),
            databases: &Databases::default(),
        };
        let mut notes = Diagnostics::new(&context);
        use_them(&mut notes);
        notes.faults
    }

    fn parse(url: &str, hosts: &[&str]) -> (Option<Target>, Vec<ConfigFault>) {
        let config = serde_json::from_value(json!({"url": url, "allow_hosts": hosts})).unwrap();
        let mut target = None;
        let faults = with_notes(|notes| target = Target::parse(&config, notes));
        (target, faults)
    }

    fn good(url: &str, hosts: &[&str]) -> Target {
        let (target, faults) = parse(url, hosts);
        assert_eq!(faults, []);
        target.unwrap()
    }

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn values_stay_in_their_place() {
        let target = good("https://api.example.com:8443/v1/{{ x }}/w?a={{ x }}&b=ü", &[]);
        for (value, written) in [
            (json!("Oslo, NO"), "Oslo%2C%20NO"),
            (json!("a/b?c#d%e&f=g"), "a%2Fb%3Fc%23d%25e%26f%3Dg"),
            (json!("@evil.example:80\\"), "%40evil.example%3A80%5C"),
            (json!("\r\nHost: x"), "%0D%0AHost%3A%20x"),
            (json!("ø~-._"), "%C3%B8~-._"),
            (json!(7), "7"),
            (json!("{{ y }}"), "%7B%7B%20y%20%7D%7D"),
        ] {
            let arguments = object(json!({"x": value}));
            assert_eq!(target.faults(Values::of(&arguments)), [], "{value}");
            let url = target.render(Values::of(&arguments), &[("p", "1 &".into()), ("p", "é".into())]).unwrap();
            let expected =
                format!("https://api.example.com:8443/v1/{written}/w?a={written}&b=%C3%BC&p=1%20%26&p=%C3%A9");
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn path_values_that_lead_elsewhere_are_refused() {
        let target = good("https://api.example.com/v1/{{ x }}", &[]);
        for value in
            ["", ".", "..", "%2e", "%2E%2e", ".%2e", "%252e%252e", "../admin", "a/../b", "a\\..\\b", "..%2fadmin"]
        {
            let faults = target.faults(Values::of(&object(json!({"x": value}))));
            assert_eq!(faults.iter().map(|v| v.pointer().to_owned()).collect::<Vec<_>>(), ["/x"], "{value:?}");
        }
        for value in ["..;/admin", "..\0", " ..", "\u{ff0e}\u{ff0e}", "\u{2025}", "..%3bx"] {
            assert_eq!(target.faults(Values::of(&object(json!({"x": value})))).len(), 1, "{value:?}");
        }
        for missing in [json!({}), json!({"x": null})] {
            assert_eq!(target.faults(Values::of(&object(missing))).len(), 1);
        }
        for fine in ["...", ".hidden", "a..b", "a.b"] {
            assert_eq!(target.faults(Values::of(&object(json!({"x": fine})))), [], "{fine}");
        }
    }

    #[test]
    fn values_beside_text_form_no_dots() {
        for (url, x, y) in [
            ("https://api.example.com/v1/{{ x }}{{ y }}", "%2", "e%2e"),
            ("https://api.example.com/v1/..{{ x }}/{{ y }}", ";a", "b"),
            ("https://api.example.com/v1/%2e{{ x }}/{{ y }}", "%00", "b"),
            ("https://api.example.com/v1/%252{{ x }}{{ y }}", "e", ";"),
        ] {
            let target = good(url, &[]);
            assert!(!target.faults(Values::of(&object(json!({"x": x, "y": y})))).is_empty(), "{url}");
            assert_eq!(target.faults(Values::of(&object(json!({"x": "a", "y": "b"})))), [], "{url}");
        }
    }

    #[test]
    fn path_values_have_a_bound() {
        let target = good("https://api.example.com/v1/{{ x }}", &[]);
        let message = |value: String| target.faults(Values::of(&object(json!({"x": value}))))[0].message().to_owned();
        assert!(message("x".repeat(LONGEST + 1)).contains("at most 8192 bytes"));
        assert!(message("x/".repeat(1 << 19)).contains("at most 8192 bytes"));
        assert!(message(format!("%{}", "25".repeat(4000))).contains("more than 3 times"));
    }

    #[test]
    fn messages_tell_what_a_path_takes() {
        let target = good("https://api.example.com/v1/{{ x }}", &[]);
        for (value, said) in [
            ("".to_owned(), "`x` stands in the path of a URL and must not be empty."),
            ("..".to_owned(), "`x` stands in the path of a URL, where `.` and `..` lead elsewhere."),
            ("x".repeat(LONGEST + 1), "`x` stands in the path of a URL and has at most 8192 bytes there."),
            (
                "%25252525".to_owned(),
                "`x` stands in the path of a URL and is percent-encoded more than 3 times: write it decoded.",
            ),
        ] {
            let faults = target.faults(Values::of(&object(json!({"x": value}))));
            assert_eq!(faults.iter().map(|fault| fault.message()).collect::<Vec<_>>(), [said]);
        }
    }

    #[test]
    fn fields_of_the_context_are_encoded_and_refused_alike() {
        let target = good(
            "https://{{ context.region }}.example.com/t/{{ context.tenant }}?t={{ context.tenant }}",
            &["eu.example.com"],
        );
        let at = |context: Value| {
            let (arguments, context) = (object(json!({"context.tenant": "other"})), object(context));
            let values = Values { arguments: &arguments, context: &context };
            let faults: Vec<String> = target.faults(values).iter().map(|fault| format!("{fault:?}")).collect();
            if faults.is_empty() { Ok(target.render(values, &[]).unwrap().to_string()) } else { Err(faults.concat()) }
        };
        let url = at(json!({"region": "EU", "tenant": "a/b?c&d"}));
        assert_eq!(url, Ok("https://eu.example.com/t/a%2Fb%3Fc%26d?t=a%2Fb%3Fc%26d".into()));
        for (context, said) in [
            (
                json!({"region": "eu"}),
                "Context(\"`context.tenant` stands in the path of a URL, so `context` must have `tenant`",
            ),
            (json!({"region": "eu", "tenant": ".."}), "`context.tenant` stands in the path of a URL, where `.`"),
            (
                json!({"region": "eu", "tenant": "x".repeat(LONGEST + 1)}),
                "`context.tenant` stands in the path of a URL and has at most",
            ),
            (json!({"region": "evil.org/", "tenant": "a"}), "Context(\"There is no such host"),
        ] {
            let faults = at(context).unwrap_err();
            assert!(faults.starts_with("Context") && faults.contains(said), "{faults}");
        }
        let (_, faults) = parse("https://a.example/{{ context.user }}", &[]);
        assert!(faults[0].message.contains("write `context: [tenant, region, user]`"), "{faults:?}");
        let (_, faults) = parse("https://a.example/{{ context.tenant.id }}", &[]);
        assert!(faults[0].message.contains("one name and no path"), "{faults:?}");
    }

    #[test]
    fn certificates_matter_to_https_alone() {
        for (url, has_roots, warnings) in
            [("https://a.example/", false, 1), ("http://a.example/", false, 0), ("https://a.example/", true, 0)]
        {
            let faults = with_notes(|notes| {
                let config = serde_json::from_value(json!({"url": url})).unwrap();
                Target::parse(&config, notes).unwrap().check(|_| Ok(()), has_roots, notes);
            });
            assert_eq!(faults.len(), warnings, "{url}: {faults:?}");
        }
    }

    #[test]
    fn a_list_of_one_host_is_one_target() {
        assert!(good("https://a.example/", &[]).has_one_host());
        assert!(good("https://{{ host }}/", &["a.example"]).has_one_host());
        assert!(!good("https://{{ host }}/", &["a.example", "b.example"]).has_one_host());
    }

    #[test]
    fn whatever_the_value_the_url_stays_under_its_prefix() {
        let target = good("http://api.example.com/tenant-a/{{ x }}{{ y }}?q", &[]);
        proptest::proptest!(|(x in ".*", y in "[./%2eE\\\\?#@:]{0,6}")| {
            let arguments = object(json!({"x": x, "y": y}));
            if target.faults(Values::of(&arguments)).is_empty() {
                let url = target.render(Values::of(&arguments), &[]).unwrap();
                assert!(url.as_str().starts_with("http://api.example.com/tenant-a/"), "{url}");
                assert_eq!(url.path_segments().unwrap().count(), 2, "{url}");
                assert_eq!(url.query(), Some("q"));
            }
        });
    }

    #[test]
    fn a_host_is_one_of_the_list_and_nothing_but() {
        let target = good("https://{{ host }}.example.com:444/p", &["EU.example.com", "us.example.com"]);
        let url = target.render(Values::of(&object(json!({"host": "eU"}))), &[]).unwrap();
        assert_eq!(url.as_str(), "https://eu.example.com:444/p");
        for bad in ["evil", "", "evil.example/eu", "eu.example.com@evil", "us.example.com#", "eu.", " eu"] {
            let arguments = object(json!({"host": bad}));
            let faults = target.faults(Values::of(&arguments));
            assert!(faults[0].message().contains("eu.example.com, us.example.com"), "{bad}");
            assert!(target.render(Values::of(&arguments), &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls_that_cannot_work_are_faults() {
        for (url, hosts, said) in [
            ("{{ x }}://a.example/", &[] as &[&str], "literal http"),
            ("ftp://a.example/", &[], "literal http"),
            ("a.example/path", &[], "literal http"),
            ("https://user:pw@a.example/", &[], "user and password"),
            ("https://{{ x }}@a.example/", &[], "user and password"),
            ("https://a.example:{{ x }}/", &[], "port is fixed"),
            ("https://a.example:0/", &[], "port 0"),
            ("https://a.example:65536/", &[], "invalid port"),
            ("https://{{ x }}.example/", &[], "needs `allow_hosts`"),
            ("https://{{ x }}/", &["a.example/x"], "not a host"),
            ("https://{{ x }}/", &["a.example:80"], "port"),
            ("https://{{ x }}/", &["*"], "`*` is no host: patterns are not known here; write each host"),
            ("https://{{ x }}/", &["a.example", "*.b.example"], "patterns are not known"),
            ("https://{{ x }}/", &["https://a.example"], "without scheme"),
            ("https://{{ x }}/", &[""], "not a host"),
            ("https://{{ x }}/", &[" a.example"], "not a host"),
            ("https://{{ x }}/", &["a.example,b.example"], "not a host"),
            ("https://{{ x }}.example/", &["a.other"], "`a.other` is never asked"),
            ("https://api.{{ x }}.example/", &["api.example"], "`api.example` is never asked"),
            ("https://{{ x }}/", &["u@a.example"], "not a host"),
            ("https:///path", &[], "empty host"),
            ("https://a.example/{{ nope }}", &[], "no parameter `nope`"),
            ("https://a.example/{{ x }", &[], "without `}}`"),
            ("https://a.example/a/%2e%2E/{{ x }}", &[], "`.` and `..`"),
            ("https://a.example/a/..;b/{{ x }}", &[], "`.` and `..`"),
            ("https://a.example/%2525252525/{{ x }}", &[], "more than 3 times"),
            ("https://a.example/a b", &[], "white space"),
            ("https://a.example\\@b.example/", &[], "white space"),
            ("https://a.example/a#b", &[], "never sent"),
        ] {
            let (_, faults) = parse(url, hosts);
            let errors: Vec<_> = faults.iter().filter(|fault| !fault.warning).collect();
            assert!(errors.iter().any(|fault| fault.message.contains(said)), "{url}: {faults:?}");
        }
        assert!(parse("https://a.example/{{ z }}", &[]).1[0].warning, "an optional parameter in the path");
        assert!(parse("https://a.example/", &["b.example"]).1[0].warning, "allow_hosts without use");
    }
}
