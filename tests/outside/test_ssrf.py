"""Arguments never choose an inner address: the gate in front of every connection."""

import threading

import pytest

from harness import free_port, now, ok, problem, error_result, elapsed
from recipes import params, web
from upstream import redirect_to

# Every spelling of this host's loopback that a resolver or URL parser may understand.
SPELLINGS = ["127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1",
             "0177.1", "127.0.0.1.", "0.0.0.0", "0", "127.255.255.254", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
             "[0:0:0:0:0:ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "１２７.0.0.1", "127。0。0。1", "user:pw@127.0.0.1"]

INNER = ["http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://[::ffff:a9fe:a9fe]/", "http://2852039166/",
         "http://0xa9fea9fe/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://[fe80::1]/",
         "http://[fc00::1]/", "http://[fec0::1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::]/", "http://224.0.0.1/",
         "http://255.255.255.255/", "http://[ff02::1]/", "http://192.0.0.1/", "http://198.18.0.1/", "http://240.0.0.1/"]

NO_URL = ["file:///etc/passwd", "gopher://127.0.0.1/", "ftp://127.0.0.1/", "data:text/plain,hi", "javascript:1", "//127.0.0.1/", "", " ",
          "http://", "http:///etc/passwd", "unix:///var/run/docker.sock", "http://127.0.0.1:0/", "http://127.0.0.1:65536/",
          "http://exa mple.com/", "http://a\r\nHost: b/", "jar:http://127.0.0.1!/", "HTTP+UNIX://%2Frun/x"]


@pytest.fixture(scope="module")
def crib(start_shared):
    return start_shared({"tools": {"http_get": {"kind": "native"}}})


def assert_denied(reply, started):
    """A denied address is upstream_failed (502); an invalid URL may also be invalid arguments or an error result."""
    assert reply.status in (200, 400, 422, 502), reply
    if reply.status == 200:
        error_result(reply)
    else:
        problem(reply, kind={"upstream_failed", "invalid_arguments", "invalid_request"})
    assert elapsed(started) < 3, "refused without trying: no connection was waited for"


@pytest.mark.parametrize("host", SPELLINGS)
def test_loopback_is_denied_in_every_spelling(crib, upstream_shared, host):
    before, started = upstream_shared.hits(), now()
    assert_denied(crib.invoke("http_get", {"url": f"http://{host}:{upstream_shared.port}/text"}), started)
    assert upstream_shared.hits() == before


@pytest.mark.parametrize("url", INNER)
def test_inner_addresses_are_denied(crib, url):
    started = now()
    assert_denied(crib.invoke("http_get", {"url": url}), started)


def test_denied_address_is_upstream_failed(crib):
    """The answer never reveals what is behind the address."""
    error = problem(crib.invoke("http_get", {"url": "http://169.254.169.254/latest/"}), 502, "upstream_failed")
    assert crib.row(error["invocation_id"])["kind"] == "upstream_failed"


@pytest.mark.parametrize("url", NO_URL)
def test_invalid_urls_are_refused(crib, url):
    started = now()
    reply = crib.invoke("http_get", {"url": url})
    assert_denied(reply, started)
    assert b"root:" not in reply.body


def test_own_address_is_denied(crib):
    """The service's own address is denied."""
    started = now()
    assert_denied(crib.invoke("http_get", {"url": crib.base + "/tools"}), started)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
def test_own_port_is_denied_at_every_address(start, upstream, listen):
    """Its own port is denied at every local address, whatever `allow_private` is; other local ports stay allowed."""
    fetch = {"kind": "native", "with": {"allow_private": True}}
    crib = start({"server": {"allow_open": True}, "tools": {
        "get": dict(fetch, use="http_get"), "show": dict(fetch, use="add_image"),
        "path": web("http://127.0.0.1:{port}/{{ v }}".replace("{port}", str(upstream.port)), effect="read", parameters=params(v="string"))}},
        listen=listen)
    for host in ("127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST.", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1"):
        for path in ("invocations", "metrics", "tools"):
            error = problem(crib.invoke("get", {"url": f"http://{host}:{crib.port}/{path}"}), 502, "upstream_failed")
            assert "where this service itself listens" in error["detail"], (host, error)
        problem(crib.invoke("show", {"source": f"http://{host}:{crib.port}/a.png"}), 502, "upstream_failed")
    ok(crib.invoke("get", {"url": upstream.base + "/text"}))
    ok(crib.invoke("path", {"v": "text"}))


def test_fixed_url_to_the_service_is_denied(start, tmp_path):
    """Such a URL is refused as well: the call could loop for ever."""
    port = free_port()
    crib = start({"tools": {"loop": web(f"http://127.0.0.1:{port}/tools/loop/invoke", effect="read",
                                        request={"method": "POST", "json": {"arguments": {}}})}}, listen=f"127.0.0.1:{port}")
    error = problem(crib.invoke("loop"), 502, "upstream_failed")
    assert "where this service itself listens" in error["detail"], error


def test_private_address_needs_allow_private(start, upstream):
    """A URL with arguments is checked unless the manifest sets `allow_private`."""
    url = upstream.base + "/echo/{{ v }}"
    crib = start({"tools": {"gated": web(url, request={"allow_private": False}, effect="read", parameters=params(v="string")),
                            "allowed": web(url, effect="read", parameters=params(v="string"))}})
    problem(crib.invoke("gated", {"v": "x"}), 502, "upstream_failed")
    assert upstream.hits() == 0
    ok(crib.invoke("allowed", {"v": "x"}))
    assert upstream.hits() == 1


@pytest.mark.parametrize("host", ["169.254.169.254", "169.254.0.1", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"])
def test_metadata_is_denied_even_with_allow_private(start, host):
    crib = start({"tools": {"meta": web(f"http://{host}/latest/{{{{ v }}}}", effect="read", parameters=params(v="string"))}})
    started = now()
    problem(crib.invoke("meta", {"v": "x"}), 502, "upstream_failed")
    assert elapsed(started) < 3


def test_redirect_to_metadata_is_not_followed(start, upstream):
    upstream.script("/go", redirect_to("http://169.254.169.254/latest/meta-data/"))
    crib = start({"tools": {"go": web(upstream.base + "/go", effect="read")}})
    started = now()
    reply = crib.invoke("go")
    assert reply.status == 502 or error_result(reply)
    assert elapsed(started) < 3


def test_environment_proxies_are_ignored(start, upstream):
    """An HTTP_PROXY in the environment does not bypass the check."""
    proxy = {name: upstream.base for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")}
    crib = start({"tools": {"http_get": {"kind": "native"}}}, env=proxy)
    assert_denied(crib.invoke("http_get", {"url": "http://169.254.169.254/text"}), now())
    assert upstream.hits() == 0


def test_repeated_denials_stay_denials(crib, upstream_shared):
    """Repeated denials (the circuit does not open): the last answer equals the first."""
    before, answers = upstream_shared.hits(), []
    threads = [threading.Thread(target=lambda: answers.append(crib.invoke("http_get", {"url": f"http://127.0.0.1:{upstream_shared.port}/"})))
               for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 12 and all(answer.status == 502 for answer in answers), answers
    assert upstream_shared.hits() == before
