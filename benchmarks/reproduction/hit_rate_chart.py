#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws hit rates by cache size as SVG, from the JSON of `hotset simulate` on standard input (see README.md)."""
import json
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 56, 40, 130, 44
COLOURS = ["#888888", "#d98324", "#7b5ea7", "#1f77b4", "#222222"]


def chart(report):
    """Returns the SVG of one report: a line for each eviction policy."""
    experts = report["trace"]["layers"] * report["trace"]["experts"]
    lines = {}
    for run in report["results"]:
        lines.setdefault(run["eviction"], []).append((100 * run["slots"] / experts, 100 * run["hits"] / run["accesses"]))
    x = lambda share: LEFT + (WIDTH - LEFT - RIGHT) * share / 100
    y = lambda hits: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * hits / 100
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">Hit rate by cache size, {report["trace"]["name"]}: '
        f'{report["trace"]["layers"]} layers x {report["trace"]["experts"]} experts, one shared cache</text>',
    ]
    for tick in range(0, 101, 25):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick} %</text>')
        out.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick} %</text>')
    out.append(f'<text x="{x(50):.1f}" y="{HEIGHT - 8}" text-anchor="middle">share of the experts that fit</text>')
    ends = sorted((line[len(line) // 2][1], name) for name, line in lines.items())
    for rank, (_, name) in enumerate(reversed(ends)):
        colour = COLOURS[list(lines).index(name) % len(COLOURS)]
        points = " ".join(f"{x(share):.1f},{y(hits):.1f}" for share, hits in lines[name])
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 20 + 20 * rank}" fill="{colour}">{name}</text>')
    return "\n".join(out + ["</svg>"])


if __name__ == "__main__":
    print(chart(json.load(sys.stdin)))
