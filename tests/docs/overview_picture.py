"""Draws docs/images/overview.svg: what calls Toolcrib, what it does with a call, and where the call goes.

    python3 tests/docs/overview_picture.py

The picture has a ground of its own, because the page around it may be light where the system is dark.
"""

import html

from pages import BOOK

PICTURE = BOOK / "images" / "overview.svg"
CALLERS = [("Your agent", "any language", ["GET /tools", "POST /calls", "POST /tools/NAME/invoke"]), ("MCP clients", "editors, desktops, agents", ["POST /mcp"])]
STEPS = ["check the arguments", "ask a person", "look in the cache", "count the limits", "run in a sandbox", "retry if allowed", "record"]
TOOLS = ["HTTP and OpenAPI", "Python functions", "MCP servers", "SQL databases", "programs", "sub-agents", "your own in Rust"]
STYLE = """
text{font:15px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}.h{font-weight:600}.s{fill:#59636e;font-size:13px}
.m{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#0550ae}
rect{fill:#f6f8fa;stroke:#d0d7de}.t{fill:#ddf4ff;stroke:#54aeff}.w{fill:#fff}path{stroke:#59636e;stroke-width:1.5;fill:none}#a path{fill:#59636e;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.m{fill:#79c0ff}rect{fill:#151b23;stroke:#3d444d}.t{fill:#0c2d4d;stroke:#388bfd}.w{fill:#0d1117}
path{stroke:#9198a1}#a path{fill:#9198a1}}
"""


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'


def box(x, y, width, height, kind=""):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" class="{kind}"/>'


def arrow(*points):
    return f'<path d="M{" L".join(points)}" marker-end="url(#a)"/>'


def draw():
    parts = [box(0.5, -3.5, 873, 375, "w")]
    for (name, about, routes), y in zip(CALLERS, (40, 186)):
        parts += [box(10, y, 190, 62), text(24, y + 26, name, "h"), text(24, y + 48, about, "s"), arrow(f"200 {y + 31}", f"398 {y + 31}")]
        parts += [text(214, y + 22 - 18 * (len(routes) - 1) + 18 * row, route, "m") for row, route in enumerate(routes)]
    parts += [box(400, 10, 190, 252, "t"), text(495, 40, "Toolcrib", "h", "middle")]
    parts += [text(495, 76 + 27 * row, step, "", "middle") for row, step in enumerate(STEPS)]
    for row, tool in enumerate(TOOLS):
        y = 10 + 36.7 * row
        parts += [box(690, round(y, 1), 164, 32), text(704, round(y + 21, 1), tool), arrow(f"590 {y + 16:.0f}", f"688 {y + 16:.0f}")]
    parts += [arrow("495 262", "495 298"), box(365, 300, 260, 56), text(495, 323, "Ledger", "h", "middle"),
              text(495, 344, "every call: SQLite or PostgreSQL", "s", "middle")]
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -4 874 376" width="874" height="376" role="img">'
            "<title>Agents call Toolcrib by HTTP or MCP. Toolcrib checks, limits, caches, runs, retries and records each call.</title>"
            f"<style>{STYLE}</style>"
            '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8z"/></marker></defs>'
            f'{"".join(parts)}</svg>\n')


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
