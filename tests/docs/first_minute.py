"""Records the first minute with Toolcrib in a real terminal, and draws the recording as a picture.

    python3 tests/docs/first_minute.py [PATH OF THE PROGRAM]     # records, and writes docs/images/first-minute.cast and .svg
    python3 tests/docs/first_minute.py --draw                    # draws the recording that is there

The recording is an asciinema v2 cast: `asciinema play docs/images/first-minute.cast` plays it. A shell in a pseudo-terminal gets
the keys of COMMANDS, and everything that it prints is kept with its time. Needs pyte from PyPI, and port 7411 must be free.
"""

import fcntl
import html
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time

import pyte

from pages import BINARY, BOOK

CAST = BOOK / "images" / "first-minute.cast"
PICTURE = BOOK / "images" / "first-minute.svg"
COLUMNS, ROWS = 92, 28
PROMPT = "\x1b[1;32m$\x1b[0m "
# Seconds: between two keys, and before the next command.
KEY, PAUSE = 0.035, 1.2

TOOL = '''def price(product: str, count: int = 1) -> dict:
    """Computes the price of an order.

    Args:
        product: Number of the product, for example B-1.
        count: How many pieces.
    """
    prices = {"B-1": 12.5, "B-2": 8.0}
    return {"product": product, "total": prices[product] * count}
'''
MANIFEST = """python_modules:
  prices:
    module: ./prices.py
    functions: [price]
    tools:
      price: {effect: read, cache: {ttl: 1h}, limits: [{calls: 100, per: day}]}
"""
CURL = "curl -s -w '\\n' localhost:7411/tools/price/invoke -H content-type:application/json \\\n  -d "
COMMANDS = [
    "cat prices.py               # a Python function of yours",
    "cat toolcrib.yaml           # declares it as a tool, with its rules",
    "toolcrib check",
    "toolcrib serve --log error &",
    CURL + """'{"arguments": {"product": "B-1", "count": 3}}'""",
    CURL + """'{"arguments": {"product": "B-1", "count": "many"}}' | grep -o '"content".*'""",
    "toolcrib invocations --server localhost:7411",
]


# ---- recording ----------------------------------------------------------------------------------------------------------


class Terminal:
    """A shell in a pseudo-terminal, and what it has printed when."""

    def __init__(self, folder, environment):
        self.events, self.began, self.printed = [], time.monotonic(), ""
        self.child, self.end = pty.fork()
        if self.child == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--noprofile", "--norc"], environment)
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def read(self, seconds):
        """Keeps what comes within this time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.end], [], [], left)[0]:
                text = os.read(self.end, 65536).decode(errors="replace")
                self.events.append([round(time.monotonic() - self.began, 3), "o", text])
                self.printed += text

    def read_until(self, text):
        until = time.monotonic() + 30
        while not self.printed.endswith(text):
            if time.monotonic() > until:
                raise SystemExit(f"the terminal waits for {text!r}, and has {self.printed[-200:]!r}")
            self.read(0.05)

    def type(self, command):
        for key in command:
            os.write(self.end, key.encode())
            self.read(KEY)
        self.read(PAUSE / 3)
        self.printed = ""
        os.write(self.end, b"\n")

    def close(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


def record(program):
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        folder, programs = place / "demo", place / "bin"
        folder.mkdir()
        programs.mkdir()
        (programs / "toolcrib").symlink_to(program)
        (folder / "prices.py").write_text(TOOL)
        (folder / "toolcrib.yaml").write_text(MANIFEST)
        (place / "inputrc").write_text("set enable-bracketed-paste off\n")
        terminal = Terminal(folder, {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(place), "TERM": "xterm-256color", "LANG": "C.UTF-8",
                                     "INPUTRC": str(place / "inputrc"), "PS1": "\\[\\e[1;32m\\]$\\[\\e[0m\\] ", "PS2": "> "})
        try:
            terminal.read_until(PROMPT)
            for command in COMMANDS:
                terminal.read(PAUSE)
                terminal.type(command)
                if command.endswith("&"):
                    terminal.read_until("listening on http://127.0.0.1:7411\r\n")
                    # The shell printed its prompt before the service was ready; Enter brings the next one.
                    os.write(terminal.end, b"\n")
                terminal.read_until(PROMPT)
            terminal.read(PAUSE)
            if any("error:" in text or "already in use" in text for _, _, text in terminal.events):
                raise SystemExit("a command failed: is port 7411 free?")
            os.write(terminal.end, b"kill %1\n")
            time.sleep(1)
        finally:
            terminal.close()
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "The first minute with Toolcrib", "env": {"TERM": "xterm-256color", "SHELL": "/bin/bash"}}
    CAST.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in [head, *terminal.events]), encoding="utf-8")


# ---- drawing ------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, MARGIN = 8.4, 19, 14  # of a character, and around the screen
# Seconds: changes that are nearer than this are one picture, a longer wait is cut, and the end stays.
TOGETHER, LONGEST, LAST = 0.11, 2.5, 6
COLORS = {"green": "g", "red": "r", "brown": "y", "yellow": "y", "blue": "b", "cyan": "c", "magenta": "m"}
STYLE = """
.p{fill:#f6f8fa;stroke:#d0d7de}text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#1f2328}
.g{fill:#1a7f37}.r{fill:#cf222e}.y{fill:#9a6700}.b{fill:#0969da}.c{fill:#1b7c83}.m{fill:#8250df}.o{font-weight:bold}.d{opacity:.65}.k{fill:#6e7781}
@media(prefers-color-scheme:dark){.p{fill:#0d1117;stroke:#30363d}text{fill:#e6edf3}
.g{fill:#3fb950}.r{fill:#ff7b72}.y{fill:#d29922}.b{fill:#58a6ff}.c{fill:#39c5cf}.m{fill:#bc8cff}.k{fill:#8b949e}}
@media(prefers-reduced-motion:reduce){.f{animation:none!important}}
"""


def screens(lines):
    """(seconds, lines of the screen) for each picture, where a line is a tuple of (text, classes)."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    found, clock, before = [], 0.0, 0.0
    for at, _, text in lines:
        clock += min(at - before, LONGEST)
        before = at
        if not found or clock - found[-1][0] >= TOGETHER:
            found.append([clock, None])
        stream.feed(text)
        found[-1][1] = [spans(screen.buffer[row]) for row in range(ROWS)]
    return found


def spans(row):
    cells = [(row[column].data, classes(row[column])) for column in range(COLUMNS)]
    while cells and cells[-1][0] == " ":
        cells.pop()
    joined = []
    for text, kind in cells:
        if joined and joined[-1][1] == kind:
            joined[-1][0] += text
        else:
            joined.append([text, kind])
    return tuple(map(tuple, joined))


def classes(cell):
    return " ".join(filter(None, [COLORS.get(cell.fg.removeprefix("bright"), ""), "o" if cell.bold else "", "k" if cell.fg == "brightblack" else ""]))


def draw():
    _, *lines = map(json.loads, CAST.read_text(encoding="utf-8").splitlines())
    pictures = screens(lines)
    length = pictures[-1][0] + LAST
    numbers, texts = {}, []
    for _, picture in pictures:
        for line in picture:
            if line and line not in numbers:
                numbers[line] = len(numbers)
                inner = "".join(f'<tspan class="{kind}">{html.escape(text)}</tspan>' if kind else html.escape(text) for text, kind in line)
                texts.append(f'<text id="l{numbers[line]}">{inner}</text>')
    wide, high = COLUMNS * WIDTH + 2 * MARGIN, ROWS * HEIGHT + 2 * MARGIN
    moves, groups = [], []
    for number, (at, picture) in enumerate(pictures):
        moves.append(f"{at / length * 100:.3f}%{{transform:translateX(-{number * wide:.0f}px)}}")
        uses = "".join(f'<use href="#l{numbers[line]}" y="{(row + 1) * HEIGHT - 5}"/>' for row, line in enumerate(picture) if line)
        groups.append(f'<g transform="translate({number * wide + MARGIN:.0f} {MARGIN})">{uses}</g>')
    last = (len(pictures) - 1) * wide
    # Without animation the last picture stands.
    style = f"{STYLE}.f{{transform:translateX(-{last:.0f}px);animation:f {length:.1f}s steps(1,end) infinite}}@keyframes f{{{''.join(moves)}}}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" height="{high}" role="img">'
            f"<title>The first minute with Toolcrib</title><style>{style}</style>"
            f'<defs>{"".join(texts)}<clipPath id="a"><rect width="{wide:.0f}" height="{high}" rx="8"/></clipPath></defs>'
            f'<rect class="p" x=".5" y=".5" width="{wide - 1:.0f}" height="{high - 1}" rx="8"/>'
            f'<g clip-path="url(#a)"><g class="f">{"".join(groups)}</g></g></svg>\n')


def main(arguments):
    if "--draw" not in arguments:
        program = pathlib.Path(arguments[0]) if arguments else BINARY
        record(shutil.which(program.resolve()) or sys.exit(f"{program}: no such program"))
    PICTURE.write_text(draw(), encoding="utf-8")
    print(f"{CAST.stat().st_size} bytes of recording, {PICTURE.stat().st_size} bytes of picture")


if __name__ == "__main__":
    main(sys.argv[1:])
