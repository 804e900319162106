//! One entry of `mcp_servers:`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::decode::Entry;
use super::inputs::Inputs;
use super::sections::PolicyEntry;
use super::source::SourceRules;
use super::source_tools::{Source, SourceEntry};
use crate::call::units::HumanDuration;
use crate::call::{EnvVar, JsonObject, Kind};
use crate::kinds::SandboxSetting;
use crate::kinds::http::AuthConfig;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::sources::mcp::{Mode, Protocol, ServerSettings, Transport};
use crate::sources::{SourceSettings, ToolFilter};

/// One entry of `mcp_servers:`. Its tools are called `{server}_{tool}`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServerEntry {
    /// Program and arguments of a server that speaks MCP on standard input and output. There is no
    /// shell. Either `command` or `url`.
    #[schemars(extend("examples" = [["npx", "-y", "some-mcp-server"]]))]
    command: Option<Vec<String>>,
    /// Environment variables of the program, beside path, home, language, proxies and certificates
    /// of the service.
    #[schemars(extend("examples" = [serde_json::json!({"TOKEN": "${env:TOKEN}"})]))]
    environment: Option<BTreeMap<String, String>>,
    /// Working folder of the program, relative to the manifest. Default: the manifest's folder.
    #[schemars(extend("examples" = ["./data"]))]
    workdir: Option<PathBuf>,
    /// What the program may do. `service`: everything, except to reach the service. `true` or a map:
    /// only what is named. `none`: everything.
    #[schemars(extend("examples" = [serde_json::json!({"network": ["api.example.com"]})]), extend("default" = "service"))]
    sandbox: Option<SandboxSetting>,
    /// Address of a server that speaks MCP over streamable HTTP.
    #[schemars(extend("examples" = ["https://mcp.example.com/mcp"]))]
    url: Option<String>,
    /// Header fields of each request to `url`.
    #[schemars(extend("examples" = [serde_json::json!({"authorization": "Bearer ${env:DOCS_TOKEN}"})]))]
    headers: Option<BTreeMap<String, String>>,
    /// How requests to `url` are authorized, if `headers` is not enough.
    #[schemars(extend("examples" = [serde_json::json!({"oauth": {"token_url": "https://auth.example.com/token", "client_id": "orders-agent", "client_secret": "${env:DOCS_SECRET}"}})]))]
    auth: Option<AuthConfig>,
    /// Name of the caller whose credentials list the tools, if `headers` or `url` has
    /// `${caller:NAME}`. Without it, the listing sends no such header.
    #[schemars(extend("examples" = ["research-agent"]))]
    list_as: Option<String>,
    /// `persistent`: one connection for all calls. `on_demand`: one connection for each call.
    #[schemars(with = "Option<ModeWord>", extend("examples" = ["on_demand"]), extend("default" = "persistent"))]
    mode: Option<String>,
    /// The version of MCP to use, for a server that gives no usable answer to `server/discover`.
    /// Default: the newest one that the server knows.
    #[schemars(extend("examples" = ["2025-11-25"]))]
    protocol: Option<Protocol>,
    /// The server's tools that are mounted; `*` stands for any characters. Default: all.
    #[schemars(extend("examples" = [["get_*"]]))]
    include: Option<Vec<String>>,
    /// The server's tools that are left out. Takes precedence over `include`.
    #[schemars(extend("examples" = [["delete_*"]]))]
    exclude: Option<Vec<String>>,
    /// Time for one attempt of each tool that has no `timeout` of its own.
    #[schemars(extend("examples" = ["30s"]), extend("default" = "30s"))]
    timeout: Option<HumanDuration>,
    /// Time to start, to connect and to list tools.
    #[schemars(extend("examples" = ["60s"]), extend("default" = "60s"))]
    start_timeout: Option<HumanDuration>,
    /// Lets the hints of a pinned server decide the effect of tools that have no `effect` in the
    /// manifest.
    #[schemars(extend("examples" = [true]))]
    trust_hints: bool,
    /// Policy of all tools of the server.
    // Read separately.
    #[schemars(with = "PolicyEntry")]
    defaults: Option<serde_json::Value>,
    /// Policy of single tools, by the server's own name of a tool. A name with `*` is a pattern for
    /// several tools.
    // Read separately for each tool.
    #[schemars(with = "BTreeMap<String, JsonObject>")]
    tools: Option<serde_json::Value>,
    /// Fields of the request's `context` that the server's tools take.
    // Read before references are replaced.
    #[schemars(with = "Option<Vec<String>>", extend("examples" = [["tenant"]]))]
    context: Option<serde_json::Value>,
    /// Environment variables that the server needs. Its program is given them.
    #[schemars(with = "Vec<EnvVar>", extend("examples" = [serde_json::json!([{"name": "TOKEN"}])]))]
    env: Option<serde_json::Value>,
}

/// The values of `mode:`, for the manifest's schema.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", inline)]
#[expect(
    dead_code,
    reason = "only its schema is used: `read_mode` reads the word and suggests the nearest one"
)]
enum ModeWord {
    Persistent,
    OnDemand,
}

impl SourceEntry for ServerEntry {
    const KIND: Kind = Kind::Mcp;
    const RUNTIME_KEYS: &[&str] = &[
        "command",
        "environment",
        "workdir",
        "sandbox",
        "url",
        "headers",
        "auth",
    ];
    /// A name is the prefix of every tool's name, and the whole name has at most 128 characters.
    const MAX_NAME: usize = 64;
    const NAME_RULE: &str = "a server's name here has 1 to 64 characters of A-Z a-z 0-9 _ - . and is not . or .., \
                             because it is the prefix of its tools' names";
    const SOME_KEYS: &str = "command or url, mode, tools …";

    fn from_text(text: &str) -> Value {
        match text.contains("://") {
            true => json!({"url": text}),
            false => json!({"command": text.split_whitespace().collect::<Vec<_>>()}),
        }
    }

    fn rules(&self, name: &str) -> SourceRules {
        SourceRules {
            prefix: format!("{name}_"),
            trust_hints: self.trust_hints,
            ..SourceRules::default()
        }
    }

    fn base_policy(&self) -> PolicyEntry {
        PolicyEntry {
            timeout: self.timeout,
            ..PolicyEntry::default()
        }
    }

    fn settings(self, name: &str, source: &Source<'_>) -> Option<SourceSettings> {
        if let Some(auth) = &self.auth {
            let headers = self.headers.iter().flat_map(BTreeMap::keys);
            source.check_auth(auth, AddressPolicy::allow_private(), headers);
        }
        let start_timeout = source.start_timeout(self.start_timeout);
        let has_mode = self.mode.is_some();
        let mode = source.read_mode(self.mode.as_deref());
        if self.include.as_ref().is_some_and(Vec::is_empty) {
            let message =
                "names no tool, so the server would have no tools; leave the key out for all";
            source.error("include", message);
        }
        let include = self.include.clone().unwrap_or_default();
        let exclude = self.exclude.clone().unwrap_or_default();
        for (key, patterns) in [("include", &include), ("exclude", &exclude)] {
            if patterns.iter().any(|pattern| pattern.trim().is_empty()) {
                let message = "names of tools are expected here; `*` stands for anything in them";
                source.error(key, message);
            }
        }
        let protocol = self.protocol;
        let transport = self.transport(source)?;
        let per_caller = matches!(
            &transport,
            Transport::Url {
                per_caller: Some(_),
                ..
            }
        );
        let mode = match mode? {
            Mode::Persistent if per_caller && has_mode => {
                let message = "each call needs a connection of its own, with the credentials of its caller: write mode: \
                               on_demand, or leave the key out";
                source.error("mode", message);
                return None;
            }
            _ if per_caller => Mode::OnDemand,
            mode => mode,
        };
        let settings = ServerSettings {
            name: name.to_owned(),
            transport,
            mode,
            include,
            exclude,
            protocol,
            start_timeout,
        };
        Some(SourceSettings::Mcp(settings.into()))
    }

    fn check(settings: &SourceSettings, rules: &SourceRules, _: &Inputs<'_>, entry: Entry<'_>) {
        let SourceSettings::Mcp(settings) = settings else {
            return;
        };
        let filter = ToolFilter::new(&settings.include, &settings.exclude);
        for own in rules.tools.keys().filter(|own| !filter.allows(own)) {
            let message = "include and exclude leave this tool out, so this policy has no effect";
            entry.error(&["tools", own], message);
        }
    }
}

impl ServerEntry {
    /// How the server is reached.
    fn transport(self, source: &Source<'_>) -> Option<Transport> {
        let misplaced: &[_] = match (&self.command, &self.url) {
            (Some(_), None) => &[
                (
                    "headers",
                    self.headers.is_some(),
                    "headers go with a url; for a command write environment",
                ),
                (
                    "auth",
                    self.auth.is_some(),
                    "auth goes with a url; for a command write environment",
                ),
            ],
            (None, Some(_)) => &[
                (
                    "environment",
                    self.environment.is_some(),
                    "environment goes with a command; for a url write headers",
                ),
                (
                    "workdir",
                    self.workdir.is_some(),
                    "workdir goes with a command",
                ),
                (
                    "sandbox",
                    self.sandbox.is_some(),
                    "sandbox goes with a command: at a url, another service runs the program",
                ),
            ],
            (Some(_), Some(_)) => &[("url", true, "command and url exclude each other: keep one")],
            (None, None) => {
                let message = "command or url is missing: how is the server reached? e.g. command: [npx, -y, some-mcp-server]";
                source.entry.own_error(message);
                return None;
            }
        };
        for (key, _, message) in misplaced.iter().filter(|(_, is_there, _)| *is_there) {
            source.error(key, *message);
        }
        match (self.command, self.url) {
            (Some(argv), None) => {
                let environment = self.environment.unwrap_or_default();
                let environment = source.declared.process_environment(environment);
                source.read_command(argv, environment, self.workdir, self.sandbox)
            }
            (None, Some(url)) => {
                let headers = self.headers.unwrap_or_default();
                let transport = source.read_url(&url, headers, self.auth)?;
                Some(source.add_listing_caller(transport, self.list_as.as_deref()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use url::Url;

    use super::super::source::DeclaredSource;
    use super::super::source_tools::DEFAULT_START_TIMEOUT;
    use super::*;
    use crate::call::Effect;
    use crate::manifest::rule::Rule;
    use crate::manifest::testing::{check_rules, check_text, load_text};

    fn server(entry: &str) -> Result<DeclaredSource, Vec<String>> {
        load_text(&format!("mcp_servers:\n  s: {entry}\n"))
            .map(|mut manifest| manifest.sources.remove(0))
    }

    fn settings(entry: &str) -> ServerSettings {
        match server(entry)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
            .settings
        {
            SourceSettings::Mcp(settings) => *settings,
            SourceSettings::Module(_)
            | SourceSettings::Openapi(_)
            | SourceSettings::Program { .. } => {
                panic!("not a server")
            }
        }
    }

    #[test]
    fn server_entry_reads_every_key() {
        let entry = "{command: [./bin/server, --root, ./data], workdir: data, environment: {TOKEN: \"${env:KEY}\"}, mode: on_demand, protocol: 2025-06-18, \
                     include: [\"get_*\"], exclude: [get_all], timeout: 9s, start_timeout: 5s, tools: {get_weather: {effect: read, \
                     cache: {ttl: 1m}, aliases: [weather]}, get_time: {timeout: 3s}}}";
        let declared = server(entry).unwrap_or_else(|errors| panic!("{errors:?}"));
        let SourceSettings::Mcp(settings) = &declared.settings else {
            panic!("not a server")
        };
        let reach = Transport::Command {
            argv: ["/etc/crib/bin/server", "--root", "./data"]
                .map(str::to_owned)
                .to_vec(),
            environment: [("TOKEN".to_owned(), "value-of-key".to_owned())].into(),
            workdir: "/etc/crib/data".into(),
            sandbox: SandboxSetting::Service,
        };
        assert!(settings.transport == reach && settings.name == "s");
        assert_eq!(
            (settings.mode, settings.protocol, settings.start_timeout),
            (
                Mode::OnDemand,
                Some(Protocol::V20250618),
                Duration::from_secs(5)
            )
        );
        assert_eq!(
            (&settings.include[..], &settings.exclude[..]),
            (&["get_*".to_owned()][..], &["get_all".to_owned()][..])
        );
        let policy = declared.rules.policy_for("other", Kind::Mcp, None);
        assert_eq!(
            (declared.rules.prefix.as_str(), policy.timeout),
            ("s_", Duration::from_secs(9))
        );
        let policy = |name: &str| declared.rules.policy_for(name, Kind::Mcp, None);
        assert_eq!(
            (policy("get_weather").effect, policy("get_weather").timeout),
            (Effect::Read, Duration::from_secs(9))
        );
        assert_eq!(
            (policy("get_time").effect, policy("get_time").timeout),
            (Effect::Write, Duration::from_secs(3))
        );
        assert!(
            !declared
                .written_settings
                .to_string()
                .contains("value-of-key"),
            "{}",
            declared.written_settings
        );
    }

    #[test]
    fn url_servers_send_headers() {
        let far = settings(
            "{url: \"https://mcp.example.com/mcp?v=1\", headers: {Authorization: \"Bearer ${env:KEY}\"}}",
        );
        let reach = Transport::Url {
            url: Url::parse("https://mcp.example.com/mcp?v=1").unwrap(),
            headers: [("authorization".to_owned(), "Bearer value-of-key".to_owned())].into(),
            auth: None,
            per_caller: None,
        };
        assert!(far.transport == reach);
        assert_eq!(
            (far.mode, far.start_timeout),
            (Mode::Persistent, DEFAULT_START_TIMEOUT)
        );
        let near = settings("{command: [npx, -y, some-mcp-server]}");
        assert!(
            matches!(near.transport, Transport::Command { argv, .. } if argv[0] == "npx"),
            "searched in PATH"
        );
    }

    #[test]
    fn included_servers_use_their_own_folder() {
        let manifest =
            load_text("include: [\"more/*.yaml\"]\nmcp_servers: {near: {command: [x]}}\n")
                .unwrap_or_else(|e| panic!("{e:?}"));
        let names: Vec<&str> = manifest.sources.iter().map(DeclaredSource::name).collect();
        assert_eq!(names, ["near", "far"]);
        let SourceSettings::Mcp(far) = &manifest.sources[1].settings else {
            panic!("not a server")
        };
        assert!(
            matches!(&far.transport, Transport::Command { argv, .. } if argv[0] == "/etc/crib/more/server")
        );
        let errors = load_text("include: [\"more/*.yaml\"]\nmcp_servers: {far: {command: [x]}}\n")
            .err()
            .unwrap();
        assert!(
            errors[0].ends_with("mcp_servers.far: the name is taken: 2:15"),
            "{errors:?}"
        );
    }

    #[test]
    fn invalid_servers_are_located_errors() {
        for (entry, expected) in [
            (
                "{mode: persistent}",
                "2:6: mcp_servers.s: command or url is missing",
            ),
            (
                "{command: [x], url: \"https://e.example\"}",
                "2:21: mcp_servers.s.url: command and url exclude",
            ),
            (
                "{command: npx -y thing}",
                "2:7: mcp_servers.s.command: a list is expected here",
            ),
            (
                "{command: []}",
                "2:7: mcp_servers.s.command: a program and its arguments",
            ),
            (
                "{command: [\"\"]}",
                "mcp_servers.s.command: a program and its arguments",
            ),
            (
                "{command: [./bin/none]}",
                "mcp_servers.s.command: there is no file /etc/crib/",
            ),
            (
                "{command: [x], headers: {a: b}}",
                "mcp_servers.s.headers: headers go with a url",
            ),
            (
                "{url: \"https://e.example\", environment: {A: b}}",
                "mcp_servers.s.environment: environment goes with",
            ),
            (
                "{command: [x], environment: {\"A=B\": c}}",
                "mcp_servers.s.environment.A=B: a variable's name",
            ),
            ("{url: mcp.example.com}", "mcp_servers.s.url: not a URL"),
            (
                "{url: \"ftp://e.example\"}",
                "mcp_servers.s.url: only http and https",
            ),
            (
                "{url: \"https://ann:pw@e.example\"}",
                "mcp_servers.s.url: a name or a password",
            ),
            (
                "{url: \"https://e.example/#x\"}",
                "mcp_servers.s.url: the part after #",
            ),
            (
                "{url: \"https://e.example\", headers: {\"a b\": c}}",
                "mcp_servers.s.headers.a b: this is not a valid \
                                                                     name",
            ),
            (
                "{url: \"https://e.example\", headers: {Mcp-Session-Id: c}}",
                "mcp_servers.s.headers.Mcp-Session-Id: this header",
            ),
            (
                "{url: \"https://e.example\", headers: {a: b, A: c}}",
                "mcp_servers.s.headers.a: this header field is used twice",
            ),
            (
                "{url: \"https://e.example\", headers: {a: \"b\\nc\"}}",
                "mcp_servers.s.headers.a: a header field holds one line",
            ),
            (
                "{command: [x], mode: persistant}",
                "mcp_servers.s.mode: unknown mode, did you mean persistent?",
            ),
            (
                "{command: [x], mode: lazily}",
                "mcp_servers.s.mode: unknown mode; there are persistent and on_demand",
            ),
            (
                "{comand: [x]}",
                "mcp_servers.s.comand: unknown key, did you mean command?",
            ),
            (
                "{command: [x], include: []}",
                "mcp_servers.s.include: names no tool",
            ),
            (
                "{command: [x], exclude: [\"\"]}",
                "mcp_servers.s.exclude: names of tools",
            ),
            (
                "{command: [x], start_timeout: 0s}",
                "mcp_servers.s.start_timeout: the time must be above zero",
            ),
            ("{command: [x], timeout: soon}", "mcp_servers.s.timeout"),
            (
                "{command: [x], timeout: 0s}",
                "mcp_servers.s.timeout: a timeout of zero",
            ),
            (
                "{command: [x], environment: {K: \"${env:NOT_THERE}\"}}",
                "mcp_servers.s.environment.K: environment variable NOT_THERE",
            ),
            (
                "{command: [x], tools: {f: {efect: read}}}",
                "mcp_servers.s.tools.f.efect: unknown key, did you mean effect?",
            ),
            (
                "{comand: [x], tools: {f: {efect: read}}}",
                "mcp_servers.s.tools.f.efect: unknown key",
            ),
            (
                "{command: [x], tools: {f: {prefix: a}}}",
                "mcp_servers.s.tools.f.prefix: unknown key",
            ),
            (
                "{command: [x], tools: {\"f g\": {}}}",
                "mcp_servers.s.tools.f g: a tool name has",
            ),
            (
                "{command: [x], exclude: [\"f*\"], tools: {fetch: {}}}",
                "mcp_servers.s.tools.fetch: include and exclude leave",
            ),
            ("npx", "mcp_servers.s: a map is expected"),
        ] {
            let errors = server(entry).err().unwrap_or_default();
            assert!(
                errors.iter().any(|error| error.contains(expected)),
                "{entry}: {errors:?}"
            );
            assert!(!format!("{errors:?}").contains("pw@"), "{errors:?}");
        }
        assert!(
            load_text("mcp_servers: {a/b: {command: [x]}}\n")
                .err()
                .unwrap()[0]
                .contains("a server's name")
        );
        assert!(load_text("mcp_servers: [s]\n").err().unwrap()[0].contains("a map of servers"));
        let clash = "tools: {s_f: {kind: native, use: calculator}}\nmcp_servers: {s: {command: [x], tools: {f: {}}}}\n";
        assert!(
            load_text(clash).err().unwrap()[0]
                .ends_with("mcp_servers.s.tools.f: the name is taken: 1:9")
        );
        let module = "python_modules: {s: {module: os}}\nmcp_servers: {s: {command: [x]}}\n";
        assert!(
            load_text(module).err().unwrap()[0].ends_with("mcp_servers.s: the name is taken: 1:18")
        );
        let kind = load_text("tools: {s: {kind: mcp, description: A tool.}}\n")
            .err()
            .unwrap();
        assert!(
            kind[0].contains("are declared in the section `mcp_servers:`"),
            "{kind:?}"
        );
    }

    #[test]
    fn lints_check_server_entries() {
        let lints = |entry: &str| check_rules(&format!("mcp_servers:\n  s: {entry}\n"));
        let found =
            lints("{command: [x, ghp_0123456789abcdef], environment: {API_TOKEN: tok-123456789}}");
        for expected in [
            "mcp_servers.s.environment.API_TOKEN",
            "mcp_servers.s.command.1",
        ] {
            assert!(
                found.contains(&format!("literal-secret {expected}")),
                "{expected}: {found:?}"
            );
        }
        let found = lints(
            "{url: \"https://e.example\", headers: {authorization: Bearer tok-123456789}, tools: {f: {retry: {attempts: 3}}}}",
        );
        for expected in [
            "literal-secret mcp_servers.s.headers.authorization",
            "ineffective mcp_servers.s.tools.f.retry",
        ] {
            assert!(
                found.contains(&expected.to_owned()),
                "{expected}: {found:?}"
            );
        }
    }

    #[test]
    fn overlapping_server_prefixes_are_warnings() {
        let two = |one: &str, other: &str| {
            let text =
                format!("mcp_servers:\n  {one}: {{command: [s]}}\n  {other}: {{command: [s]}}\n");
            check_text(&text)
                .iter()
                .map(ToString::to_string)
                .filter(|found| found.contains("may overlap"))
                .collect::<Vec<_>>()
        };
        for (one, other) in [("a", "a_b"), ("a_b", "a"), ("a", "a_"), ("a_b_c", "a_b")] {
            let expected = format!(
                "mcp_servers.{other}: tool names of this server may overlap with those of server \
                                `{one}` ("
            );
            let longer = if one.len() > other.len() { one } else { other };
            let ownership = format!("`{longer}_…` always belongs to `{longer}`");
            let found = two(one, other);
            assert!(
                found.len() == 1 && found[0].contains(&expected) && found[0].contains(&ownership),
                "{found:?}"
            );
            assert!(
                found[0].starts_with("/etc/crib/t.yaml:3:3: ") && !found[0].contains("  "),
                "{found:?}"
            );
        }
        for (one, other) in [("a", "ab"), ("a", "a-b"), ("a_b", "a_c"), ("a", "b_a")] {
            assert!(two(one, other).is_empty(), "{one} {other}");
        }
    }

    #[test]
    fn cache_has_no_warning_while_the_effect_is_open() {
        let warnings = |entry: &str| {
            let findings = check_text(&format!(
                "mcp_servers: {{s: {{url: 'https://x.example/mcp', {entry}}}}}\n"
            ));
            findings
                .iter()
                .filter(|finding| finding.rule == Rule::Ineffective)
                .map(|found| found.path.clone())
                .collect()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(
            warnings("defaults: {effect: read}, tools: {'list_*': {cache: {ttl: 1m}}}"),
            none
        );
        let found: Vec<String> = warnings("trust_hints: true, tools: {a: {cache: {ttl: 1m}}}");
        assert!(
            !found.iter().any(|path| path.ends_with("cache")),
            "{found:?}"
        );
        assert_eq!(
            warnings("tools: {a: {cache: {ttl: 1m}}}"),
            ["mcp_servers.s.tools.a.cache"]
        );
    }
}
