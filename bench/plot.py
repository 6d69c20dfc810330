#!/usr/bin/env python3
"""Draws how cost grows with the work, from bench/results/*.json into docs/plots/*.svg; a run draws its own when it ends.

Usage: bench/plot.py
Both axes are logarithmic: a level line costs the same however much there is.
"""

import json
import math
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "docs/plots"
# What a plot shows: the run's results in it, which figures of theirs (the number is what grows), and what the axes are.
PLOTS = {
    "dhcp": ("grown", r"cpu at (\d+)", "leases held", "CPU µs for a lease"),
    "dns": ("grown", r"cpu at (\d+)", "names in the cache", "CPU µs for a hit"),
    "proxy": ("idle", r"idle memory (\d+)", "idle connections", "KiB for each"),
    "xds": ("grown", r"cpu at (\d+)", "backends", "CPU µs for one moved endpoint"),
    "operator": ("grown", r"cpu at (\d+)", "Infras", "manager's CPU ms for each"),
}
# Told apart by every eye (Okabe and Ito), in the order of the contenders; ours is black and thick.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b"]
WIDTH, HEIGHT = 680, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 500, 20, 270


def points(row, pattern):
    """[(how much, figure)] of a contender, in order."""
    found = ((re.fullmatch(pattern, figure), summary) for figure, summary in row.items())
    return sorted((int(match.group(1)), summary["median"]) for match, summary in found if match and summary)


def scale(values, low, high):
    """A logarithmic scale from whole powers of ten to places on the page, and the powers within."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    last = max(last, first + 1)
    place = lambda value: low + (math.log10(value) - first) / (last - first) * (high - low)
    return place, [10.0**power for power in range(first, last + 1)]


def draw(series, across, up):
    """An SVG of {contender: [(x, y)]}."""
    series = {name: [(x, y) for x, y in line if x > 0 and y > 0] for name, line in series.items()}
    every = [point for line in series.values() for point in line]
    x_place, x_ticks = scale([x for x, _ in every], LEFT, RIGHT)
    y_place, y_ticks = scale([y for _, y in every], BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in x_ticks:
        at = x_place(tick)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{BOTTOM + 16}" text-anchor="middle">{tick:,.0f}</text>')
    for tick in y_ticks:
        at = y_place(tick)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{RIGHT}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{across}</text>')
    middle = (TOP + BOTTOM) / 2
    parts.append(f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{up}</text>')
    colours = iter(COLOURS)
    dearest_first = sorted((name for name in series if series[name]), key=lambda name: -series[name][-1][1])
    for number, name in enumerate(dearest_first):
        colour, width = ("black", 3) if name == "oooi" else (next(colours), 1.5)
        path = " ".join(f"{x_place(x):.1f},{y_place(y):.1f}" for x, y in series[name])
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        for x, y in series[name]:
            parts.append(f'<circle cx="{x_place(x):.1f}" cy="{y_place(y):.1f}" r="{width + 1}" fill="{colour}"/>')
        row = TOP + 12 + 20 * number
        parts.append(f'<line x1="{RIGHT + 16}" y1="{row}" x2="{RIGHT + 40}" y2="{row}" stroke="{colour}" stroke-width="{width}"/>')
        parts.append(f'<text x="{RIGHT + 46}" y="{row + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def of_result(name, result):
    """Draws what a run found, if there is a plot of it."""
    if name not in PLOTS:
        return
    part, pattern, across, up = PLOTS[name]
    FOLDER.mkdir(exist_ok=True)
    series = {contender: points(row, pattern) for contender, row in result[part].items()}
    (FOLDER / f"{name}.svg").write_text(draw(series, across, up))


def main():
    for name in PLOTS:
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            of_result(name, json.loads(path.read_text()))


if __name__ == "__main__":
    main()
