"""Runs the program on a pseudo-terminal, as a person does."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from harness import BIN, clean_env


def on_terminal(*args, cwd, columns=80, env=None, timeout=20):
    """Exit code and output of one run whose standard output is a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([BIN, *map(str, args)], cwd=str(cwd), env=clean_env(env, cwd), stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=subprocess.PIPE, close_fds=True)
    os.close(theirs)
    output, deadline = b"", time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(ours, 65536)
            except OSError:  # EIO: the program has closed its end
                break
            if not part:
                break
            output += part
        else:
            raise AssertionError(f"still running after {timeout} s: {args}")
        stderr = process.stderr.read().decode()
        return process.wait(timeout), output.decode().replace("\r\n", "\n"), stderr
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(ours)
