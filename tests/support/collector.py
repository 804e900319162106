"""A collector of OpenTelemetry, made from the official protobuf definitions: it keeps what it is sent."""

import gzip
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from harness import poll

REQUESTS = {"/v1/traces": trace_service_pb2.ExportTraceServiceRequest, "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
            "/v1/logs": logs_service_pb2.ExportLogsServiceRequest}


def plain(value):
    """The value of an attribute."""
    return getattr(value, value.WhichOneof("value"))


def attributes(record):
    named = {pair.key: plain(pair.value) for pair in record.attributes}
    assert len(named) == len(record.attributes), "an attribute occurs twice"
    return named


class Span:
    def __init__(self, span, resource, scope):
        self.name, self.kind = span.name, trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.state, self.flags, self.attributes = span.trace_state, span.flags, attributes(span)
        self.began, self.ended = span.start_time_unix_nano, span.end_time_unix_nano
        self.failed, self.message = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR, span.status.message
        self.resource, self.scope = resource, scope
        assert len(span.trace_id) == 16 and len(span.span_id) == 8 and self.began <= self.ended

    def __repr__(self):
        return f"{self.kind} {self.name} {self.attributes}"


class Collector:
    """`answer(path)` may return a status, or block."""

    def __init__(self, answer=lambda path: 200):
        self.messages, self.headers, self.raw, self.answer = [], [], b"", answer
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.headers["content-type"] == "application/x-protobuf"
                status = outer.answer(self.path)
                if status == 200:
                    outer.keep(self.path, dict(self.headers.items()), body)
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def keep(self, path, headers, body):
        message = REQUESTS[path].FromString(body)
        self.messages.append((path, message))
        self.headers.append({name.lower(): value for name, value in headers.items()})
        self.raw += body

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [Span(span, attributes(group.resource), scoped.scope.name)
                for path, message in list(self.messages) if path == "/v1/traces"
                for group in message.resource_spans for scoped in group.scope_spans for span in scoped.spans]

    def logs(self):
        return [record for path, message in list(self.messages) if path == "/v1/logs"
                for group in message.resource_logs for scoped in group.scope_logs for record in scoped.log_records]

    def metrics(self):
        """The metrics of the last message, by name."""
        messages = [message for path, message in list(self.messages) if path == "/v1/metrics"]
        return {metric.name: metric for group in messages[-1].resource_metrics for scoped in group.scope_metrics for metric in scoped.metrics} if messages else {}

    def wait_span(self, name, count=1, test=lambda span: True):
        """The spans of this name, once there are so many."""
        found = []

        def enough():
            found[:] = [span for span in self.spans() if span.name == name and test(span)]
            return len(found) >= count

        poll(enough, what=f"{count} spans {name}")
        return found


class GrpcCollector(Collector):
    """The same over gRPC, by the official library."""

    def __init__(self):
        import grpc
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
        self.messages, self.headers, self.raw, self.refuse = [], [], b"", None

        def servicer(base, path, answer):
            def export(_, request, context):
                if self.refuse:
                    context.abort(self.refuse, "not now")
                self.keep(path, dict(context.invocation_metadata()), request.SerializeToString())
                return answer()
            return type("Servicer", (base,), {"Export": export})()

        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(
            servicer(trace_service_pb2_grpc.TraceServiceServicer, "/v1/traces", trace_service_pb2.ExportTraceServiceResponse), self.server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(
            servicer(metrics_service_pb2_grpc.MetricsServiceServicer, "/v1/metrics", metrics_service_pb2.ExportMetricsServiceResponse), self.server)
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(
            servicer(logs_service_pb2_grpc.LogsServiceServicer, "/v1/logs", logs_service_pb2.ExportLogsServiceResponse), self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self.port}"
        self.server.start()

    def close(self):
        self.server.stop(0)
