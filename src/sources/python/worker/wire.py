"""The pipes to the service. Tools cannot reach them."""

import os
import select
import threading


class Wire:
    """The descriptors of the protocol. Tools cannot reach them through 0, 1 and 2."""

    def __init__(self):
        self.source = os.dup(0)  # os.dup: not inherited by programs that tools start
        self.sink = os.dup(1)
        self.log = os.dup(2)
        self.redirect_standard_descriptors()
        self.lock = threading.Lock()  # tools may report progress from threads of their own
        self.max_line = 4 << 20
        # A forked child is not a worker. It must not answer, and must not hold the pipes open: the service waits for their end.
        os.register_at_fork(after_in_child=self.close_in_child)

    def redirect_standard_descriptors(self):
        """Gives tools an empty standard input, and the log as standard output and standard error."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != 0:
            os.dup2(nothing, 0)
            os.close(nothing)
        os.dup2(self.log, 1)
        os.dup2(self.log, 2)

    def close_in_child(self):
        for descriptor in (self.source, self.sink, self.log):
            try:
                os.close(descriptor)
            except OSError:
                pass
        self.source = self.sink = self.log = -1
        self.lock = threading.Lock()  # a thread that was not forked may have locked the old one forever

    def send(self, line):
        """Writes one line and its line end, with a single write if the pipe accepts it."""
        data = to_bytes(line) + b"\n"
        with self.lock:
            if self.sink < 0:
                os._exit(1)  # a forked child that returned from the tool's function: it must not answer
            try:
                written = os.write(self.sink, data)
                while written < len(data):
                    written += os.write(self.sink, data[written:])
            except OSError:
                os._exit(1)  # the service has closed the pipe

    def read_line(self):
        """The next line, with its line end; less at the end of the input.

        The service sends nothing after this line until it has an answer, so no byte after the line is read.
        """
        pieces = []
        while not (pieces and pieces[-1].endswith(b"\n")):
            piece = os.read(self.source, 1 << 16)
            if not piece:
                break
            pieces.append(piece)
        return b"".join(pieces)

    def write_log(self, text):
        """Writes to the log, whatever the tool did to sys.stderr."""
        try:
            os.write(self.log, to_bytes(text.rstrip("\n") + "\n"))
        except OSError:
            pass

    def exit_with_the_service(self):
        """Ends the process when the service has closed the log, even during a call. So no process is orphaned."""

        def watch():
            poll = select.poll()
            poll.register(self.log, 0)  # only errors: POLLERR on a pipe means that its reader is gone
            while True:
                for _, event in poll.poll():
                    if event & (select.POLLERR | select.POLLHUP):
                        os._exit(1)
                    if event & select.POLLNVAL:
                        return

        if hasattr(select, "poll"):
            threading.Thread(target=watch, name="toolcrib-watch", daemon=True).start()


def to_bytes(text):
    """UTF-8. Halves of surrogate pairs, which UTF-8 cannot hold, are joined or become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
