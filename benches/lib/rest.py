"""What the service takes before the first call: instructions until it is ready, memory of its own, and the size of the program."""

import contextlib
import os
import pathlib
import time
import unittest.mock

from lib import instructions, service

MANIFEST = "tools: {calculator: {kind: native}}\n"
# The allocator returns freed memory at once here. When it waits, as it does otherwise, equal starts differ by 10 %.
ENVIRONMENT = {"MIMALLOC_PURGE_DELAY": "0"}
STARTS, SETTLED_S = 3, 1


def measure(binary):
    """{name: KiB or instructions}. Memory with a file behind it is left out: how much of the program is mapped depends on what the
    kernel has cached. Instructions stand for the time of the start, which differs by half between equal starts."""
    with unittest.mock.patch.dict(os.environ, ENVIRONMENT), instructions.memory_folder() as own, contextlib.ExitStack() as stack:
        servers = [stack.enter_context(service.toolcrib(binary, f"rest-{number}", own, MANIFEST)) for number in range(STARTS)]
        time.sleep(SETTLED_S)
        memory = min(server.memory_mib()[1] for server in servers)
    with instructions.memory_folder() as own:
        with instructions.Counted(service.serve_command(binary, "start", own, MANIFEST), own) as server:
            start = sum(server.counted().values())
    return {"start": start, "memory, KiB": round(memory * 1024), "program, KiB": pathlib.Path(binary).stat().st_size // 1024}
