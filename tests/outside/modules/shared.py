"""One object with blocking and async methods."""

import asyncio
import os
import threading
import time

from toolcrib import tool


class Account:
    def __init__(self, start=0):
        self.sum = start

    @tool
    def add(self, amount: int) -> dict:
        """Adds an amount, blocking."""
        before = self.sum
        time.sleep(0.01)
        self.sum = before + amount
        return {"sum": self.sum, "pid": os.getpid(), "thread": threading.current_thread() is not threading.main_thread()}

    @tool
    async def add_async(self, amount: int) -> dict:
        """Adds an amount on the loop."""
        self.sum += amount
        return {"sum": self.sum, "pid": os.getpid()}

    @tool
    def nap(self, seconds: float) -> str:
        """Sleeps and looks at nothing."""
        time.sleep(seconds)
        return "awake"

    @tool(context=True)
    def watches(self, tool_context) -> str:
        """Blocks until it is cancelled."""
        tool_context.cancel_signal.wait(60)
        return "stopped"

    @tool
    async def nap_async(self, seconds: float) -> str:
        """Sleeps on the loop."""
        await asyncio.sleep(seconds)
        return "awake"

    @tool
    def fails(self) -> str:
        """Raises."""
        raise KeyError("no such account")
