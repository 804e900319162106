"""`starts.py WAY`: a server that fails when it starts, or does not end."""

import os
import signal
import subprocess
import sys
import time

from wire import Server, append_line, text, tool

WAY = sys.argv[1]
CALLS = {"pid": lambda server, message: text(str(os.getpid()))}


class UnusualServer(Server):
    def on_initialize(self, number, params):
        if WAY == "refuses":
            return self.refuse(number, -32603, "The licence has expired")
        if WAY == "old":
            return self.answer(number, {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
        if WAY == "unknown_version":
            return self.answer(number, {"protocolVersion": "1999-01-01", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}})
        if WAY == "no_tools":
            return self.answer(number, {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}})
        if WAY == "wrong_result":
            return self.answer(number, {"hello": "world"})
        if WAY == "picky" and params["protocolVersion"] != "2025-03-26":
            return self.refuse(number, -32602, "Unsupported protocol version", {"supported": ["2025-03-26"]})
        super().on_initialize(number, params)

    def handle_message(self, message):
        if WAY == "silent":
            return
        if WAY == "strict" and message["method"] == "server/discover":
            os._exit(7)  # as servers do that take nothing before `initialize`
        if WAY == "unasked" and message["method"] == "server/discover":
            return  # ignores unknown requests
        if WAY == "hollow" and message["method"] == "server/discover":
            return self.answer(message["id"], {})  # its answer to whatever it does not know
        if WAY == "dies_listing" and message["method"] == "tools/list":
            os._exit(4)
        if WAY == "hangs_listing" and message["method"] == "tools/list":
            return
        if WAY == "pings" and message["method"] in ("initialize", "server/discover"):
            self.send({"id": "early", "method": "ping"})
            self.notify("notifications/message", level="info", data="starting")
        super().handle_message(message)

    def closed(self):
        if WAY in ("stubborn", "grandchildren"):
            while True:
                time.sleep(60)


if WAY == "dies":
    append_line("STARTED", str(os.getpid()))
    sys.exit("no config: /etc/made-up.conf")
if WAY == "bleeds":  # every second start succeeds
    with open(os.environ["STARTED"], "a+", encoding="utf-8") as file:
        file.seek(0)
        odd = len(file.readlines()) % 2 == 0
    if odd:
        append_line("STARTED", str(os.getpid()))
        sys.exit("not yet")
if WAY == "slow_again" and os.path.exists(os.environ["STARTED"]):  # only the first start is quick
    time.sleep(60)
if WAY == "takes":  # so many seconds for every start
    time.sleep(float(sys.argv[2]))
if WAY == "garbage":
    sys.stdout.write("Welcome to the server!\n\n{\"level\": \"info\"}\n[]\nnull\n")
    sys.stdout.flush()
if WAY == "deaf":
    os.close(1)
    time.sleep(300)
if WAY in ("stubborn", "grandchildren"):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
if WAY == "grandchildren":
    for _ in range(3):
        subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM HUP; sleep 300; : {sys.argv[2]}"], start_new_session=True)
UnusualServer([tool("pid")], CALLS, modern="modern" in sys.argv).run()
