"""The measured programs, the machine they run on, and the options of the command line."""

import argparse
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys

from lib.service import fail, print_status

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")  # an absolute one wins over ROOT


def build(name, profile="dist"):
    """The program in the profile that ships, or in another one."""
    print_status(f"building {name} ({profile})")
    # The workspace: the package `bare` alone would have dependencies with other features.
    command = ["cargo", "build", "--quiet", "--profile", profile, "--workspace", "--bin", name]
    if os.environ.get("CI"):
        command.append("--locked")
    if subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
        fail(f"{' '.join(command)} failed")
    return TARGET / os.environ.get("CARGO_BUILD_TARGET", "") / profile / name


def is_installed(wanted, folder, commands, options):
    """Runs `commands` once, so that `folder`, which is below TARGET, has what `wanted` says. False if they fail and this is only a
    smoke test."""
    # Scripts of a virtual environment hold its full path.
    mark, content = folder / "wanted", f"{folder} {wanted}\n"
    if mark.exists() and mark.read_text() == content:
        return True
    print_status(f"installing {wanted} under {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        try:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            done = subprocess.CompletedProcess(command, 1, "", str(error))
        if done.returncode:
            problem = f"{wanted} cannot be installed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
            if not options.smoke:
                fail(problem)
            print_status(f"left out: {problem}")
            return False
    mark.write_text(content)
    return True


def end_on_sigterm():
    """`kill` ends a run as Ctrl-C does: through the `finally` that stops the servers and removes the files."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def int_between(low, high):
    def parse(text):
        number = int(text)
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{number} is not within {low} and {high}")
        return number
    return parse


def program(text):
    if not shutil.which(text):
        raise argparse.ArgumentTypeError(f"{text} is no program")
    return pathlib.Path(text).resolve()


def machine():
    cpu = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return f"{len(os.sched_getaffinity(0))} cores, {cpu}, {platform.system()} {platform.release()}"


def versions(toolcrib):
    def first_line(*command):
        quiet = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 30}
        try:
            done = subprocess.run(command, **quiet)
        except OSError:
            return f"{command[0]}: unknown"
        # wrk prints its version on standard output and then fails for want of a URL.
        return next(iter((done.stdout or done.stderr).splitlines()), f"{command[0]}: unknown")

    axum = (ROOT / "Cargo.lock").read_text().partition('name = "axum"\nversion = "')[2].partition('"')[0]
    wrk = first_line("wrk", "-v").partition(" Copyright")[0]
    return ", ".join((first_line(toolcrib, "--version"), f"axum {axum}", first_line("rustc", "--version"), wrk))
