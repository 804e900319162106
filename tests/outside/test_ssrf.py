"""Arguments never choose an inner address: the gate in front of every connection."""

import threading

import pytest

from harness import now, ok, problem, said_no, spent
from recipes import params, web
from upstream import moved

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


def denied(reply, started):
    """A denied address is upstream_failed (502); what is no URL at all may also be told as bad arguments or as a no."""
    assert reply.status in (200, 400, 422, 502), reply
    if reply.status == 200:
        said_no(reply)
    else:
        problem(reply, kind={"upstream_failed", "invalid_arguments", "invalid_request"})
    assert spent(started) < 3, "refused without trying: no connection was waited for"


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_loopback(crib, up_shared, host):
    before, started = up_shared.hits(), now()
    denied(crib.invoke("http_get", {"url": f"http://{host}:{up_shared.port}/text"}), started)
    assert up_shared.hits() == before


@pytest.mark.parametrize("url", INNER)
def test_no_inner_address(crib, url):
    started = now()
    denied(crib.invoke("http_get", {"url": url}), started)


def test_a_denied_address_is_upstream_failed(crib):
    """The table's word for it, and the answer never says what is behind the address."""
    said = problem(crib.invoke("http_get", {"url": "http://169.254.169.254/latest/"}), 502, "upstream_failed")
    assert crib.row(said["invocation_id"])["kind"] == "upstream_failed"


@pytest.mark.parametrize("url", NO_URL)
def test_what_is_no_web_address(crib, url):
    started = now()
    reply = crib.invoke("http_get", {"url": url})
    denied(reply, started)
    assert b"root:" not in reply.body


def test_not_even_itself(crib):
    """The service's own address is no upstream."""
    started = now()
    denied(crib.invoke("http_get", {"url": crib.base + "/tools"}), started)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
def test_the_service_never_calls_itself(start, up, listen):
    """Its own port is shut at every local address, whatever `allow_private` says; other local ports stay open."""
    fetch = {"kind": "native", "with": {"allow_private": True}}
    crib = start({"server": {"allow_open": True}, "tools": {
        "get": dict(fetch, use="http_get"), "show": dict(fetch, use="add_image"),
        "path": web("http://127.0.0.1:{port}/{{ v }}".replace("{port}", str(up.port)), effect="read", parameters=params(v="string"))}},
        listen=listen)
    for host in ("127.0.0.1", "127.8.9.10", "localhost", "LOCALHOST.", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1"):
        for path in ("invocations", "metrics", "tools"):
            said = problem(crib.invoke("get", {"url": f"http://{host}:{crib.port}/{path}"}), 502, "upstream_failed")
            assert "where this service itself listens" in said["detail"], (host, said)
        problem(crib.invoke("show", {"source": f"http://{host}:{crib.port}/a.png"}), 502, "upstream_failed")
    ok(crib.invoke("get", {"url": up.base + "/text"}))
    ok(crib.invoke("path", {"v": "text"}))


def test_a_fixed_url_to_the_service_itself(start, tmp_path):
    """Written in full it is refused as well: such a call could go round for ever."""
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    crib = start({"tools": {"loop": web(f"http://127.0.0.1:{port}/tools/loop/invoke", effect="read",
                                        request={"method": "POST", "json": {"arguments": {}}})}}, listen=f"127.0.0.1:{port}")
    said = problem(crib.invoke("loop"), 502, "upstream_failed")
    assert "where this service itself listens" in said["detail"], said


def test_private_needs_to_be_allowed(start, up):
    """A URL that arguments take part in is gated unless the manifest says `allow_private`."""
    url = up.base + "/echo/{{ v }}"
    crib = start({"tools": {"gated": web(url, request={"allow_private": False}, effect="read", parameters=params(v="string")),
                            "allowed": web(url, effect="read", parameters=params(v="string"))}})
    problem(crib.invoke("gated", {"v": "x"}), 502, "upstream_failed")
    assert up.hits() == 0
    ok(crib.invoke("allowed", {"v": "x"}))
    assert up.hits() == 1


@pytest.mark.parametrize("host", ["169.254.169.254", "169.254.0.1", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"])
def test_metadata_is_denied_even_with_allow_private(start, host):
    crib = start({"tools": {"meta": web(f"http://{host}/latest/{{{{ v }}}}", effect="read", parameters=params(v="string"))}})
    started = now()
    problem(crib.invoke("meta", {"v": "x"}), 502, "upstream_failed")
    assert spent(started) < 3


def test_a_redirect_to_the_metadata_address(start, up):
    up.script("/go", moved("http://169.254.169.254/latest/meta-data/"))
    crib = start({"tools": {"go": web(up.base + "/go", effect="read")}})
    started = now()
    reply = crib.invoke("go")
    assert reply.status == 502 or said_no(reply)
    assert spent(started) < 3


def test_proxies_of_the_environment_are_ignored(start, up):
    """An HTTP_PROXY in the environment does not become a way around the gate."""
    proxy = {name: up.base for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")}
    crib = start({"tools": {"http_get": {"kind": "native"}}}, env=proxy)
    denied(crib.invoke("http_get", {"url": "http://169.254.169.254/text"}), now())
    assert up.hits() == 0


def test_many_denied_calls_do_not_wear_it_out(crib, up_shared):
    """Refusals in a row (no breaker opens into something else): the last is told like the first."""
    before, answers = up_shared.hits(), []
    threads = [threading.Thread(target=lambda: answers.append(crib.invoke("http_get", {"url": f"http://127.0.0.1:{up_shared.port}/"})))
               for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 12 and all(answer.status == 502 for answer in answers), answers
    assert up_shared.hits() == before
