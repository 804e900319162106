"""A picture of curves as SVG: one panel for each dimension, both axes logarithmic. It has a background of its own, so that it can be read
on light and dark pages, and markers, so that it can be read without colours."""

import html
import math

WIDTH, HEIGHT, PANELS_IN_A_ROW = 250, 190, 3
LEFT, TOP, RIGHT, BOTTOM, LEGEND = 46, 30, 16, 30, 34
STYLE = """\
text { font: 11px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 12px }
.page { fill: #ffffff } .grid { stroke: #d8dee4 } .one { stroke: #6e7781 } path { fill: none; stroke-width: 1.8 }
.s0 { stroke: #0969da } .s1 { stroke: #bc4c00 } .s2 { stroke: #8250df } .s3 { stroke: #1a7f37 } .mark { fill: #ffffff; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .page, .mark { fill: #0d1117 } .grid { stroke: #30363d } .one { stroke: #8b949e }
  .s0 { stroke: #58a6ff } .s1 { stroke: #f0883e } .s2 { stroke: #d2a8ff } .s3 { stroke: #56d364 }
}
"""


def draw(panels, names):
    """`panels` are (title, points, curves): numbers on the x-axis, and for each name the ratios to the first one."""
    panels = list(panels)
    rows = math.ceil(len(panels) / PANELS_IN_A_ROW)
    width, height = WIDTH * PANELS_IN_A_ROW, HEIGHT * rows + LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">', f"<style>{STYLE}</style>",
             f'<rect class="page" width="{width}" height="{height}" rx="6"/>']
    for number, name in enumerate(names):
        x = LEFT + number * 165
        parts += [f'<path class="s{number}" d="M{x} 18h26"/>', mark(number, x + 13, 18), text(x + 32, 22, name)]
    for number, (title, points, curves) in enumerate(panels):
        x, y = number % PANELS_IN_A_ROW * WIDTH, number // PANELS_IN_A_ROW * HEIGHT + LEGEND
        parts += [f'<g transform="translate({x} {y})">', *panel(title, points, curves), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def panel(title, points, curves):
    ratios = [math.log10(ratio) for curve in curves for ratio in curve]
    # At least from a third to three times, so that a flat curve looks flat.
    low, high = min(-0.5, *ratios) - 0.1, max(0.5, *ratios) + 0.1
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    places = positions(points)
    x_of = lambda place: round(LEFT + (place - places[0]) / (places[-1] - places[0]) * across, 1)
    y_of = lambda log: round(TOP + (high - log) / (high - low) * up, 1)
    yield text(LEFT, TOP - 10, title, "title")
    steps = (1, 2, 5) if high - low < 2 else (1,)
    factors = [step * 10**decade for decade in range(math.floor(max(-low, high)) + 1) for step in steps]
    for factor, sign in [(1, 1), *((factor, sign) for factor in factors[1:] for sign in (1, -1))]:
        if low <= (log := sign * math.log10(factor)) <= high:
            yield f'<path class="{"grid" if log else "one"}" style="stroke-width: 1" d="M{LEFT} {y_of(log)}h{across}"/>'
            yield text(LEFT - 8, y_of(log) + 4, f"{'×' if log >= 0 else '÷'} {factor:,}", anchor="end")
    for place, point in zip(places, points):
        yield text(x_of(place), HEIGHT - BOTTOM + 16, short(point), anchor="middle")
    for number, curve in enumerate(curves):
        spots = [(x_of(place), y_of(math.log10(ratio))) for place, ratio in zip(places, curve)]
        yield f'<path class="s{number}" d="M{" L".join(f"{x} {y}" for x, y in spots)}"/>'
        yield from (mark(number, x, y) for x, y in spots)


def positions(points):
    """Logarithms. Zero is as far from the second point as that one from the third."""
    if points[0]:
        return [math.log10(point) for point in points]
    others = [math.log10(point) for point in points[1:]]
    return [others[0] * 2 - others[1] if len(others) > 1 else others[0] - 1, *others]


def mark(number, x, y):
    shape = ("M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "M-3-3h6v6h-6z", "M0-4l4 7h-8z", "M0-4l4 4-4 4-4-4z")[number]
    return f'<path class="mark s{number}" transform="translate({x} {y})" d="{shape}"/>'


def text(x, y, words, kind="", anchor="start"):
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'


def short(number):
    for size, unit in ((10**6, "M"), (1000, "k")):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)
