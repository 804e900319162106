"""Tools that treat their worker badly."""

import asyncio
import os
import pathlib
import signal
import subprocess
import threading
import time

from toolcrib import tool


@tool
def pid() -> int:
    """The worker's process id."""
    return os.getpid()


@tool
async def pid_async() -> int:
    """The async worker's process id."""
    return os.getpid()


@tool
def ends(how: str) -> str:
    """Ends its worker."""
    if how == "exit":
        os._exit(3)
    if how == "exit 0":
        os._exit(0)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(30)
    return "survived"


@tool
async def ends_async() -> str:
    """Ends the worker of the async tools."""
    os._exit(3)


@tool
def family(mark: str, seconds: float = 60.0) -> str:
    """Starts programs that do not want to go, and waits."""
    subprocess.Popen(["/bin/sleep", "300", f"0.{mark}"])
    subprocess.Popen(["/bin/sleep", "300", f"0.{mark}"], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.Popen(["/bin/sh", "-c", f"setsid sh -c 'trap \"\" TERM; /bin/sleep 300 0.{mark} & wait' & exit 0"]).wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(seconds)
    return "rested"


@tool
def nap(seconds: float = 0.0) -> dict:
    """Sleeps."""
    begun = time.time()
    time.sleep(seconds)
    return {"pid": os.getpid(), "begun": begun, "ended": time.time()}


@tool
async def nap_async(seconds: float = 0.0) -> dict:
    """Sleeps between others."""
    begun = time.time()
    await asyncio.sleep(seconds)
    return {"pid": os.getpid(), "begun": begun, "ended": time.time()}


@tool
async def tidy(path: str) -> str:
    """Waits, and tidies up when it is cancelled."""
    try:
        await asyncio.sleep(60)
    finally:
        pathlib.Path(path).write_text("tidied")
    return "rested"


@tool
async def stubborn() -> str:
    """Does not care that it was cancelled."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@tool
async def blocks(seconds: float = 60.0) -> str:
    """Blocks the loop of all."""
    time.sleep(seconds)
    return "awake"


@tool
def busy() -> str:
    """Never sleeps."""
    while True:
        pass


@tool
def threads() -> str:
    """Leaves a thread behind that is no daemon."""
    threading.Thread(target=time.sleep, args=(300,)).start()
    return "left"


@tool
def dies_while(flag: str) -> str:
    """Dies for as long as a file is there."""
    if pathlib.Path(flag).exists():
        os._exit(1)
    return "well"
