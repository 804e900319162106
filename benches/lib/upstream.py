"""An HTTP server in threads of this program, for calls of an HTTP tool: it costs little beside what is measured."""

import contextlib
import socket
import threading

BODY = b'{"text":"How warm is it in Oslo?"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


@contextlib.contextmanager
def upstream():
    """Gives its URL. Every request gets the same answer, and connections stay open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends accept


def accept(listener):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    """Answers the requests of a connection, which have no body."""
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""
        while received := connection.recv(1 << 16):
            *requests, pending = (pending + received).split(b"\r\n\r\n")
            connection.sendall(ANSWER * len(requests))
