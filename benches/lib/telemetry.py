"""The cost of telemetry: the cached call of a service with a collector beside one without."""

import contextlib
import http.server
import threading

from lib import load, parts, service

PATH, _ = parts.CASES["cached"]
# A tenth of the traces is what many services send; all of them is the most that telemetry can cost.
SHARES = {"a tenth of the traces": 0.1, "all traces": 1.0}
CONNECTIONS = 16


class Collector(http.server.ThreadingHTTPServer):
    """Takes what comes over OTLP, and counts its bytes. An empty answer is the message of a complete success."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bytes = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.bytes += len(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collector():
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def telemetry(options, programs, folder):
    samples = {}
    with parts.in_folder(folder / "telemetry") as own, collector() as received, contextlib.ExitStack() as stack:
        manifests = {"without": parts.MANIFEST}
        for name, share in SHARES.items():
            manifests[name] = parts.MANIFEST + f"telemetry: {{otlp: '{received.url}', sample: {share}}}\n"
        servers = {name: stack.enter_context(service.toolcrib(programs.toolcrib, name.replace(" ", "-"), own, manifest))
                   for name, manifest in manifests.items()}
        for server in servers.values():
            server.ask("POST", PATH, load.BODY)
        seconds = len(servers) * (1 if options.smoke else options.seconds)
        for number in range(options.pairs):
            for name, sample in load.measure_in_turns(servers, PATH, CONNECTIONS, seconds, own, "hit").items():
                figures = {figure: value for figure, value in sample.items() if figure not in ("p50_us", "p99_us")}
                samples.setdefault(name, []).append(figures)
                parts.print_sample(f"telemetry {number + 1}/{options.pairs}", name, CONNECTIONS, sample)
        if not received.bytes:
            service.fail("the collector got nothing")
    return [parts.comparison(name, CONNECTIONS, samples[name], samples["without"]) for name in servers]
