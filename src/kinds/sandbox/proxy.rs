//! The way to the hosts that `network:` names: a proxy on a port of loopback, the only one that the program may
//! connect to. It speaks HTTP (`CONNECT`, and whole URLs) and SOCKS5. Names are resolved here, and the
//! SSRF gate applies.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::{Position, Url};

use crate::kinds::http::OwnPorts;
use crate::kinds::http::address_policy::AddressPolicy;
use crate::runtime::file_handles::current_limit;

/// The longest head of a request.
const MAX_HEAD: usize = 16 << 10;
/// The most fields of a request.
const MAX_FIELDS: usize = 100;
/// The most connections of one entry at once. Further ones wait. Each takes two file handles, so an entry has a
/// thirty-second of the handles at most.
const MAX_CONNECTIONS: usize = 128;
/// Time for the head of a request, and for the connection to the host.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The ports of a host that is named without one.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// One entry of `network:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostRule {
    /// In lower case, without `*.`.
    name: String,
    with_subdomains: bool,
    port: Option<u16>,
}

impl HostRule {
    /// # Errors
    /// What would be right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (rest, with_subdomains) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let url = Url::parse(&format!("socks5://{rest}")).ok();
        let url = url.filter(|url| {
            url.path().is_empty() && url.query().is_none() && url.username().is_empty()
        });
        let host = url.as_ref().and_then(Url::host_str);
        match host.filter(|host| !host.contains('*')) {
            Some(host) => Ok(Self {
                name: plain_name(host),
                with_subdomains,
                port: url.as_ref().and_then(Url::port),
            }),
            None => Err(format!(
                "`{text}` is not a host: write api.example.com, *.example.org or db.example.com:5432"
            )),
        }
    }

    fn permits(&self, host: &str, port: u16) -> bool {
        let is_host = match self.with_subdomains {
            true => host
                .strip_suffix(&self.name)
                .is_some_and(|rest| rest.ends_with('.')),
            false => host == self.name,
        };
        is_host
            && self
                .port
                .map_or(USUAL_PORTS.contains(&port), |own| own == port)
    }

    /// Whether the operator wrote an address, or this machine.
    fn is_address(&self) -> bool {
        self.name == "localhost" || self.name.parse::<std::net::IpAddr>().is_ok()
    }
}

/// A name in lower case, without brackets and the final dot.
fn plain_name(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches([']', '.']);
    host.to_ascii_lowercase()
}

/// A running proxy. Dropping it ends the proxy.
pub(super) struct Proxy {
    pub(super) port: u16,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Starts the proxy of an entry. Call it in a runtime.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn start(entry: &str, rules: Vec<HostRule>, own: OwnPorts) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let (entry, rules): (Arc<str>, Arc<[HostRule]>) = (entry.into(), rules.into());
        let handles = current_limit().unwrap_or(usize::MAX);
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS.min(handles / 64)));
        let serve = async move {
            while let Ok(permit) = connections.clone().acquire_owned().await {
                let Ok((client, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let (entry, rules, ports) = (entry.clone(), rules.clone(), own.clone());
                let work = async move {
                    serve_client(client, &entry, &rules, &ports).await;
                    drop(permit);
                };
                tokio::spawn(work.boxed());
            }
        };
        Ok(Self {
            port,
            _task: AbortOnDropHandle::new(tokio::spawn(serve.boxed())),
        })
    }
}

async fn serve_client(mut client: TcpStream, entry: &str, rules: &[HostRule], own: &OwnPorts) {
    let mut first = [0];
    let work = async {
        client.peek(&mut first).await?;
        match first {
            [5] => read_socks(&mut client).await,
            _ => read_http(&mut client).await,
        }
    };
    let Ok(Ok(Some(request))) = timeout(TIMEOUT, work).await else {
        return;
    };
    let Request {
        host,
        port,
        form,
        forwarded,
    } = request;
    let outcome = timeout(TIMEOUT, connect(&host, port, rules, own)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Refusal::Unreachable("no answer".into())));
    match outcome {
        Ok(mut server) => {
            tracing::info!(target: "toolcrib::sandbox", entry, host, port, "a program connects to a host");
            if client.write_all(form.accepted()).await.is_ok()
                && server.write_all(&forwarded).await.is_ok()
            {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        }
        Err(refusal) => {
            let reason = refusal.to_string();
            tracing::warn!(target: "toolcrib::sandbox", entry, host, port, reason, "a program could not connect to a host");
            let _ = client.write_all(&form.refused(&refusal, &host, port)).await;
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    /// No entry of `network:` permits the host.
    #[error("`network:` of its sandbox does not name it")]
    NotNamed,
    /// The SSRF gate refuses the address.
    #[error("{0}")]
    Address(String),
    /// No connection could be made.
    #[error("{0}")]
    Unreachable(String),
}

async fn connect(
    host: &str,
    port: u16,
    rules: &[HostRule],
    own: &OwnPorts,
) -> Result<TcpStream, Refusal> {
    let rule = rules.iter().find(|rule| rule.permits(host, port));
    let rule = rule.ok_or(Refusal::NotNamed)?;
    let policy = match rule.is_address() {
        true => AddressPolicy::allow_private(),
        false => AddressPolicy::deny_private(),
    };
    let policy = match own.contains(port) {
        true => policy.denying_this_machine(),
        false => policy,
    };
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> = found
        .map_err(|error| Refusal::Unreachable(error.to_string()))?
        .collect();
    let permitted = policy
        .check_addresses(host, found)
        .map_err(|denied| Refusal::Address(denied.to_string()))?;
    TcpStream::connect(&permitted[..])
        .await
        .map_err(|error| Refusal::Unreachable(error.to_string()))
}

/// What a client asks for.
struct Request {
    host: String,
    port: u16,
    form: Form,
    /// What the host gets first.
    forwarded: Vec<u8>,
}

/// The protocol of the client.
#[derive(Clone, Copy)]
enum Form {
    Connect,
    WholeUrl,
    Socks,
}

impl Form {
    fn accepted(self) -> &'static [u8] {
        match self {
            Self::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n",
            Self::WholeUrl => b"",
            Self::Socks => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        }
    }

    fn refused(self, refusal: &Refusal, host: &str, port: u16) -> Vec<u8> {
        // RFC 1928, section 6: 2 is "not allowed by ruleset", 4 is "host unreachable".
        let (status, code) = match refusal {
            Refusal::NotNamed | Refusal::Address(_) => ("403 Forbidden", 2),
            Refusal::Unreachable(_) => ("502 Bad Gateway", 4),
        };
        match self {
            Self::Socks => vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0],
            Self::Connect | Self::WholeUrl => {
                let text = format!("The sandbox refuses {host}:{port}: {refusal}.\n");
                format!(
                    "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
                    text.len()
                )
                .into_bytes()
            }
        }
    }
}

/// The fields of a request that the proxy writes itself, or that are for the proxy.
const OWN_FIELDS: [&str; 5] = [
    "host",
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "keep-alive",
];

/// Reads the head of an HTTP request (RFC 9110, section 9.3.6; RFC 9112, section 3.2.2).
async fn read_http(client: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if read.len() > MAX_HEAD || client.read_buf(&mut read).await? == 0 {
            return Ok(None);
        }
    };
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    // Lines may also end without CR, and then the head is shorter.
    let Ok(httparse::Status::Complete(end)) = head.parse(&read[..end + 4]) else {
        return Ok(None);
    };
    let (Some(method), Some(target)) = (head.method, head.path) else {
        return Ok(None);
    };
    if method == "CONNECT" {
        let target = Url::parse(&format!("socks5://{target}")).ok();
        let host = target
            .as_ref()
            .and_then(|url| Some((url.host_str()?, url.port()?)));
        return Ok(host.map(|(host, port)| Request {
            host: plain_name(host),
            port,
            form: Form::Connect,
            forwarded: read[end..].to_vec(),
        }));
    }
    let Some(url) = Url::parse(target).ok().filter(|url| url.scheme() == "http") else {
        return Ok(None);
    };
    let path = &url[Position::BeforePath..Position::AfterQuery];
    // The host was judged by the URL, so the field `host` is that of the URL (RFC 9112, section 3.2.2). One
    // request for each connection, so that each is judged.
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let mut forwarded = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    for field in head.headers.iter() {
        if !OWN_FIELDS.contains(&&*field.name.to_ascii_lowercase()) {
            let parts = [field.name.as_bytes(), b": ", field.value, b"\r\n"];
            forwarded.extend(parts.concat());
        }
    }
    forwarded.extend_from_slice(b"connection: close\r\n\r\n");
    forwarded.extend_from_slice(&read[end..]);
    Ok(Some(Request {
        host: plain_name(url.host_str().unwrap_or_default()),
        port: url.port_or_known_default().unwrap_or(80),
        form: Form::WholeUrl,
        forwarded,
    }))
}

/// Reads a request of SOCKS5 without authentication (RFC 1928).
async fn read_socks(client: &mut TcpStream) -> io::Result<Option<Request>> {
    const CONNECT: u8 = 1;
    client.read_u8().await?;
    let methods = usize::from(client.read_u8().await?);
    let mut offered = vec![0; methods];
    client.read_exact(&mut offered).await?;
    client.write_all(&[5, 0]).await?;
    let mut start = [0; 4];
    client.read_exact(&mut start).await?;
    let host = match start[3] {
        1 => {
            let mut bytes = [0; 4];
            client.read_exact(&mut bytes).await?;
            Ipv4Addr::from(bytes).to_string()
        }
        3 => {
            let length = usize::from(client.read_u8().await?);
            let mut name = vec![0; length];
            client.read_exact(&mut name).await?;
            plain_name(&String::from_utf8_lossy(&name))
        }
        4 => {
            let mut bytes = [0; 16];
            client.read_exact(&mut bytes).await?;
            std::net::Ipv6Addr::from(bytes).to_string()
        }
        _ => return Ok(None),
    };
    let port = client.read_u16().await?;
    Ok((start[1] == CONNECT).then_some(Request {
        host,
        port,
        form: Form::Socks,
        forwarded: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn hosts_are_compared_as_names() {
        let permits =
            |rule: &str, host: &str, port| HostRule::parse(rule).unwrap().permits(host, port);
        assert!(permits("api.example.com", "api.example.com", 443));
        assert!(permits("API.Example.com", "api.example.com", 80));
        assert!(!permits("api.example.com", "api.example.com", 8080));
        assert!(!permits("example.com", "api.example.com", 443));
        assert!(permits("*.example.com:8443", "a.b.example.com", 8443));
        assert!(!permits("*.example.com", "example.com", 443));
        assert!(!permits("*.example.com", "badexample.com", 443));
        assert!(permits("[::1]:5432", "::1", 5432));
        for wrong in [
            "",
            "*",
            "a/b",
            "https://a.example",
            "me@a.example",
            "a.*.example",
        ] {
            assert!(HostRule::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// A proxy for a server on loopback.
    fn proxy_for(server: &TcpListener) -> (Proxy, u16) {
        let port = server.local_addr().unwrap().port();
        let rules = vec![HostRule::parse(&format!("127.0.0.1:{port}")).unwrap()];
        (
            Proxy::start("tools.t", rules, OwnPorts::default()).unwrap(),
            port,
        )
    }

    async fn send(proxy: &Proxy, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    #[tokio::test]
    async fn the_host_field_is_that_of_the_url() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (proxy, port) = proxy_for(&server);
        for fields in [
            "host: evil.example\r\n",
            "Host: 127.0.0.1\r\nHOST: evil.example\r\n",
            "",
        ] {
            let request =
                format!("GET http://127.0.0.1:{port}/a?b HTTP/1.1\r\n{fields}x: y\r\n\r\nbody");
            let _client = send(&proxy, &request).await;
            let (mut seen, mut bytes) = (server.accept().await.unwrap().0, vec![0; 1024]);
            let mut text = String::new();
            while !text.ends_with("body") {
                let length = seen.read(&mut bytes).await.unwrap();
                text += std::str::from_utf8(&bytes[..length]).unwrap();
            }
            let expected = format!(
                "GET /a?b HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx: y\r\nconnection: close\r\n\r\nbody"
            );
            assert_eq!(text, expected);
        }
        for fields in ["host : evil.example\r\n", "x: y\r\n host: evil.example\r\n"] {
            let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\n{fields}\r\n");
            let mut answer = String::new();
            let mut client = send(&proxy, &request).await;
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "", "{fields}");
        }
    }

    #[tokio::test]
    async fn connections_are_bounded() {
        const MORE: usize = 8;
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (proxy, port) = proxy_for(&server);
        let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counted = (open.clone(), most.clone());
        tokio::spawn(async move {
            loop {
                let (mut one, _) = server.accept().await.unwrap();
                let (open, most) = counted.clone();
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let _ = one.read(&mut [0; 8]).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
        let limit = MAX_CONNECTIONS.min(current_limit().unwrap_or(usize::MAX) / 64);
        let mut clients = VecDeque::new();
        for _ in 0..limit + MORE {
            clients.push_back(send(&proxy, &request).await);
        }
        let mut answer = [0; 16];
        for client in clients.iter_mut().take(limit) {
            assert!(client.read(&mut answer).await.unwrap() > 0);
        }
        for _ in 0..MORE {
            drop(clients.pop_front());
            let waiting = &mut clients[limit - 1];
            assert!(waiting.read(&mut answer).await.unwrap() > 0);
        }
        assert_eq!(most.load(Ordering::SeqCst), limit);
    }

    #[tokio::test]
    async fn only_named_hosts_are_reached() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut one, _) = server.accept().await.unwrap();
                let _ = one.write_all(b"hello").await;
            }
        });
        let (rules, own) = (
            HostRule::parse(&format!("127.0.0.1:{port}")).unwrap(),
            OwnPorts::default(),
        );
        let proxy = Proxy::start("tools.t", vec![rules], own.clone()).unwrap();
        let ask = async |request: &[u8]| {
            let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
            client.write_all(request).await.unwrap();
            let mut answer = vec![0; 256];
            let length = client.read(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer[..length]).into_owned()
        };
        let named = ask(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(named.starts_with("HTTP/1.1 200"), "{named}");
        let other = ask(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").await;
        assert!(
            other.starts_with("HTTP/1.1 403") && other.contains("does not name it"),
            "{other}"
        );
        let url = ask(b"GET http://other.example/ HTTP/1.1\r\nhost: other.example\r\n\r\n").await;
        assert!(url.starts_with("HTTP/1.1 403"), "{url}");
        own.add(port);
        let service = ask(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(service.starts_with("HTTP/1.1 403"), "{service}");
    }
}
