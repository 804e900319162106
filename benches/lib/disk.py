"""A limited call compared with the disk under it: each answer waits until the disk has the call's row."""

import os
import statistics
import time

from lib import load, parts, service
from lib.service import print_status

# As SQLite's write-ahead log grows: over blocks that the file already has, a few pages at a time.
LOG_BYTES, WRITE_BYTES = 4 << 20, 16 << 10


def disk(options, programs, folder):
    """One caller of a limited tool. The goal for its p50 is 1.3 times an fdatasync of the same disk in the same round, and 100 µs."""
    rounds = []
    path, cache = parts.CASES["limited"]
    with parts.in_folder(folder / "disk") as own:
        with service.toolcrib(programs.toolcrib, "toolcrib", own, parts.MANIFEST) as server:
            for number in range(options.pairs):
                cases = [("sync", lambda: fdatasync_us(own / "log", options.seconds)),
                         ("call", lambda: load.measure(server, path, 1, options.seconds, own, cache)["p50_us"])]
                found = {case: measure() for case, measure in parts.rotated(cases, number)}
                print_status(f"disk {number + 1}/{options.pairs}: fdatasync p50 {found['sync']} µs, limited call p50 {found['call']} µs")
                rounds.append(found)
    median = lambda figures: round(statistics.median(figures), 2)  # noqa: E731
    return {"fdatasync_p50_us": median(one["sync"] for one in rounds),
            "limited_p50_us": median(one["call"] for one in rounds),
            "limited_of_two_fdatasync": median(one["call"] / (2 * one["sync"]) for one in rounds),
            "limited_of_goal": median(one["call"] / (1.3 * one["sync"] + 100) for one in rounds)}


def fdatasync_us(file, seconds):
    """The median time of a write that waits for the disk."""
    took, chunk, clock = [], os.urandom(WRITE_BYTES), time.perf_counter
    with open(file, "wb", buffering=0) as log:
        log.write(bytes(LOG_BYTES))
        os.fsync(log.fileno())
        until, at = clock() + seconds, 0
        while clock() < until:
            os.pwrite(log.fileno(), chunk, at)
            began = clock()
            os.fdatasync(log.fileno())
            took.append(clock() - began)
            at = (at + WRITE_BYTES) % LOG_BYTES
    return round(statistics.median(took) * 1e6)
