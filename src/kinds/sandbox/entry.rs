//! The sandbox of one entry.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use toolcrib_process::sandbox::{
    Files, Grant, Launch, Level, Limits, Network, NotEnforced, Rules, Sandbox,
};

use super::config::{NetworkSetting, SandboxMap, SandboxSetting};
use super::files::Sandboxes;
use super::proxy::{HostRule, Proxy};

/// The paths that an entry names, all absolute.
#[derive(Debug, Clone, Default)]
pub struct OwnPaths {
    /// The path of the entry in the manifest, for the log.
    pub entry: String,
    /// The working folder.
    pub workdir: PathBuf,
    /// The program, and files and folders that it needs to run.
    pub needed: Vec<PathBuf>,
    /// What it writes although no setting names it, such as the folder of its results.
    pub written: Vec<PathBuf>,
}

/// Starts the programs of one entry in their sandbox.
pub struct EntrySandbox {
    setting: SandboxSetting,
    own: OwnPaths,
    shared: Sandboxes,
    prepared: Mutex<Option<(u64, Arc<Sandbox>)>>,
    /// The proxy to the hosts that `network:` names, after the first start.
    proxy: Mutex<Option<Proxy>>,
}

/// What a sandbox holds, for answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = SandboxView)]
pub struct SandboxReport {
    /// The setting: `service`, `none`, true or a map.
    pub asked: SandboxSetting,
    /// The strongest means in force: `namespaces`, `landlock`, `seccomp` or `none`.
    pub in_force: &'static str,
    /// Parts that this machine cannot hold: `files`, `network`, `signals`, `processes`.
    pub not_enforced: Vec<&'static str>,
}

impl utoipa::PartialSchema for SandboxSetting {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType};
        let any = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
        Schema::Object(any.build()).into()
    }
}

impl utoipa::ToSchema for SandboxSetting {}

impl EntrySandbox {
    /// The sandbox of an entry with these paths.
    pub fn new(setting: SandboxSetting, own: OwnPaths, shared: Sandboxes) -> Self {
        Self {
            setting,
            own,
            shared,
            prepared: Mutex::default(),
            proxy: Mutex::default(),
        }
    }

    /// The setting.
    pub fn setting(&self) -> &SandboxSetting {
        &self.setting
    }

    /// Whether the program must not start if a part cannot be enforced.
    pub fn is_required(&self) -> bool {
        self.setting.is_required() || self.shared.is_required()
    }

    /// The paths of the entry.
    pub fn own(&self) -> &OwnPaths {
        &self.own
    }

    /// What one program is started with. Call it in a runtime.
    ///
    /// # Errors
    /// A sentence: what cannot be enforced and must be, or an error of the system.
    pub fn launch(&self) -> Result<Launch, String> {
        self.start_proxy()
            .map_err(|error| format!("the proxy of its sandbox cannot be started: {error}"))?;
        let Some(sandbox) = self.prepare() else {
            return Ok(Launch::default());
        };
        if let Some(missing) = self.missing(&sandbox) {
            return Err(format!("its sandbox cannot be enforced: {missing}"));
        }
        let mut launch = sandbox
            .launch()
            .map_err(|error| format!("its sandbox cannot be made: {error}"))?;
        if let Some(proxy) = &*self.proxy.lock() {
            launch.add_variables(proxy_variables(proxy.port));
        }
        Ok(launch)
    }

    /// Starts the proxy, if the setting names hosts and it does not run yet.
    fn start_proxy(&self) -> std::io::Result<()> {
        let hosts = match &self.setting {
            SandboxSetting::Only(map) => match &map.network {
                NetworkSetting::Hosts(hosts) => hosts,
                NetworkSetting::All(_) => return Ok(()),
            },
            SandboxSetting::Service | SandboxSetting::None => return Ok(()),
        };
        let mut proxy = self.proxy.lock();
        if proxy.is_none() {
            let rules = hosts.iter().filter_map(|host| HostRule::parse(host).ok());
            *proxy = Some(Proxy::start(
                &self.own.entry,
                rules.collect(),
                self.shared.own_ports(),
            )?);
            // The rules depend on the port.
            *self.prepared.lock() = None;
        }
        Ok(())
    }

    /// What must be enforced, and cannot be; `None`: the program may start.
    pub fn fault(&self) -> Option<String> {
        self.prepare().and_then(|sandbox| self.missing(&sandbox))
    }

    fn missing(&self, sandbox: &Sandbox) -> Option<String> {
        if !self.is_required() {
            return None;
        }
        if sandbox.level() == Level::None {
            return Some("this machine has no means to enforce its sandbox".into());
        }
        let reasons: Vec<String> = sandbox
            .not_enforced()
            .iter()
            .map(|NotEnforced { part, reason }| format!("{part}: {reason}"))
            .collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// What to tell the operator about a program that failed with this text, if its sandbox may be the
    /// reason.
    pub fn explain_failure(&self, text: &str) -> Option<String> {
        const DENIALS: [&str; 5] = [
            "permission denied",
            "operation not permitted",
            "no such file",
            "read-only file system",
            "network is unreachable",
        ];
        let SandboxSetting::Only(map) = &self.setting else {
            return None;
        };
        let text = text.to_lowercase();
        DENIALS.iter().find(|denial| text.contains(**denial))?;
        let list = |paths: &[PathBuf]| match paths {
            [] => "nothing more".to_owned(),
            paths => {
                let paths = paths.iter().map(|path| path.display().to_string());
                paths.collect::<Vec<_>>().join(", ")
            }
        };
        let network = match &map.network {
            NetworkSetting::All(true) => "all".to_owned(),
            NetworkSetting::All(false) => "none".to_owned(),
            NetworkSetting::Hosts(hosts) => hosts.join(", "),
        };
        Some(format!(
            "its sandbox may be the reason: it may read {}, write {}, and use the network: {network}",
            list(&map.read),
            list(&map.write)
        ))
    }

    /// What is in force.
    pub fn report(&self) -> SandboxReport {
        let sandbox = self.prepare();
        let sandbox = sandbox.as_deref();
        SandboxReport {
            asked: self.setting.clone(),
            in_force: sandbox.map_or(Level::None, Sandbox::level).as_str(),
            not_enforced: sandbox
                .into_iter()
                .flat_map(Sandbox::not_enforced)
                .map(|missing| missing.part)
                .collect(),
        }
    }

    /// The prepared rules, of which `not_enforced` has reasons; `None`: there is no sandbox.
    pub fn prepare(&self) -> Option<Arc<Sandbox>> {
        if self.setting == SandboxSetting::None {
            return None;
        }
        let generation = self.shared.generation();
        let mut prepared = self.prepared.lock();
        if let Some((of, sandbox)) = &*prepared
            && *of == generation
        {
            return Some(sandbox.clone());
        }
        self.shared.hold_journal(&self.own.workdir);
        let sandbox = Arc::new(Sandbox::new(self.rules(), &self.shared.support()));
        *prepared = Some((generation, sandbox.clone()));
        Some(sandbox)
    }

    fn network(&self, setting: &NetworkSetting) -> Network {
        match setting {
            NetworkSetting::All(true) => Network::All,
            NetworkSetting::All(false) => Network::None,
            // Before the first start there is no port yet, and nothing uses it.
            NetworkSetting::Hosts(_) => {
                let proxy = self.proxy.lock();
                Network::Proxy(proxy.as_ref().map_or(0, |proxy| proxy.port))
            }
        }
    }

    /// Whether a setting names the path for writing.
    fn may_write(&self, path: &PathBuf) -> bool {
        let named = match &self.setting {
            SandboxSetting::Only(map) => map.write.contains(path),
            SandboxSetting::Service | SandboxSetting::None => false,
        };
        named || self.own.written.contains(path)
    }

    fn rules(&self) -> Rules {
        let OwnPaths {
            entry: _,
            workdir,
            needed,
            written,
        } = &self.own;
        let mut own: Vec<PathBuf> = needed.clone();
        own.push(workdir.clone());
        own.extend(written.iter().cloned());
        let named = match &self.setting {
            SandboxSetting::Only(map) => map.read.iter().chain(&map.write).cloned().collect(),
            SandboxSetting::Service | SandboxSetting::None => Vec::new(),
        };
        own.extend(named);
        let hidden = self.shared.hidden_from(&own);
        let watched = self.shared.watched();
        let is_below = |path: &PathBuf| hidden.iter().any(|hidden| path.starts_with(hidden));
        let kept = own.iter().filter(|path| is_below(path)).map(|path| Grant {
            path: path.clone(),
            // Entries share a virtual environment, so none may change what the other runs.
            is_writable: !needed.contains(path) || self.may_write(path),
        });
        let kept: Vec<Grant> = kept.collect();
        match &self.setting {
            SandboxSetting::Only(map) => {
                let mut read = needed.clone();
                read.push(workdir.clone());
                read.extend(map.read.iter().cloned());
                let write = map.write.iter().chain(written).cloned().collect();
                Rules {
                    files: Files::Only {
                        read,
                        write,
                        hidden,
                        kept,
                    },
                    network: self.network(&map.network),
                    limits: limits(map),
                    watched,
                }
            }
            SandboxSetting::Service | SandboxSetting::None => Rules {
                files: Files::AllExcept {
                    hidden,
                    kept,
                    workplaces: workplaces(workdir),
                },
                network: Network::All,
                limits: Limits::default(),
                watched,
            },
        }
    }
}

/// A program, the interpreter of a script, and the folders of their installations with their libraries.
pub fn program_paths(program: &Path) -> Vec<PathBuf> {
    let mut paths = vec![program.to_owned()];
    paths.extend(interpreter(program));
    let real = paths.iter().filter_map(|path| {
        let real = std::fs::canonicalize(path).ok();
        real.filter(|real| real != path)
    });
    let real: Vec<PathBuf> = real.collect();
    paths.extend(real);
    let installations: Vec<PathBuf> = paths.iter().filter_map(|path| installation(path)).collect();
    paths.extend(installations);
    paths
}

/// The program that the first line of a script names (`execve(2)`).
fn interpreter(script: &Path) -> Option<PathBuf> {
    // Linux reads no more of the line.
    const MAX_LINE: u64 = 256;
    let mut start = Vec::new();
    // Opening a pipe would wait.
    let file = script
        .is_file()
        .then(|| std::fs::File::open(script).ok())??;
    file.take(MAX_LINE).read_to_end(&mut start).ok()?;
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.split_whitespace().next().map(PathBuf::from)
}

/// The folder above `bin`: a virtual environment, or an installation with libraries. Not a folder in which
/// users keep other things, too.
fn installation(program: &Path) -> Option<PathBuf> {
    let bin = program.parent().filter(|folder| folder.ends_with("bin"))?;
    let folder = bin.parent()?;
    let is_shared = folder.ends_with(".local") || folder.ends_with(".cargo");
    let is_installation = folder.join("pyvenv.cfg").is_file() || folder.join("lib").is_dir();
    let is_system = folder.parent().is_none() || folder.starts_with("/usr");
    (is_installation && !is_shared && !is_system).then(|| folder.to_owned())
}

/// The variables by which programs find a proxy.
fn proxy_variables(port: u16) -> Vec<(String, String)> {
    let http = format!("http://127.0.0.1:{port}");
    let socks = format!("socks5h://127.0.0.1:{port}");
    let named = [
        ("HTTP_PROXY", &http),
        ("HTTPS_PROXY", &http),
        ("ALL_PROXY", &socks),
    ];
    let lower = named.map(|(name, value)| (name.to_lowercase(), value.clone()));
    let upper = named.map(|(name, value)| (name.to_owned(), value.clone()));
    let none = ["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), String::new()));
    lower.into_iter().chain(upper).chain(none).collect()
}

/// Where programs make files: their working folder, and the folders for temporary files.
fn workplaces(workdir: &Path) -> Vec<PathBuf> {
    let mut places = vec![workdir.to_owned(), std::env::temp_dir()];
    places.extend(["/tmp", "/var/tmp", "/dev/shm", "/root", "/home"].map(PathBuf::from));
    places
}

fn limits(map: &SandboxMap) -> Limits {
    Limits {
        memory: map.memory.map(|size| size.0),
        cpu_seconds: map.cpu.map(|time| time.0.as_secs().max(1)),
        processes: map.processes.map(u64::from),
        files: map.files.map(u64::from),
        disk: map.disk.map(|size| size.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_needs_the_installation_of_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(folder.path()).unwrap();
        for name in ["python/bin", "python/lib", "venv/bin"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        std::fs::write(base.join("python/bin/python3"), "").unwrap();
        let own = base.join("venv/bin/python");
        std::os::unix::fs::symlink(base.join("python/bin/python3"), &own).unwrap();
        let script = base.join("venv/bin/server");
        std::fs::write(&script, format!("#!{} -I\nimport x\n", own.display())).unwrap();
        let paths = program_paths(&script);
        for needed in [script, own, base.join("python")] {
            assert!(paths.contains(&needed), "{needed:?}: {paths:?}");
        }
    }
}
