"""What the service takes before it does anything: memory of its own, and the size of the program."""

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
    """{name: KiB}. Memory with a file behind it is left out: how much of the program is mapped depends on what the kernel has cached."""
    with unittest.mock.patch.dict(os.environ, ENVIRONMENT), instructions.memory_folder() as own, contextlib.ExitStack() as stack:
        servers = [stack.enter_context(service.toolcrib(binary, f"rest-{number}", own, MANIFEST)) for number in range(STARTS)]
        time.sleep(SETTLED_S)
        memory = min(server.memory_mib()[1] for server in servers)
    return {"memory at rest": round(memory * 1024), "program": pathlib.Path(binary).stat().st_size // 1024}
