#!/usr/bin/env python3
"""Makes the table and the picture of docs/fleet.md from what kiln-fleet-simulation prints.

plot.py SIMULATION [--check]: writes both; with --check only says whether they are as they should be.
"""

import json
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs/fleet.md", ROOT / "docs/fleet.svg"
BEGIN, END = "<!-- table: tests/simulation/plot.py -->\n", "<!-- end of the table -->\n"


def number(value):
    return f"{value:,}".replace(",", " ")


def table(rows):
    lines = ["| way | foreseen, s | last rank, s | first kernel, s | builds | of these wasted | requests |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        foreseen = f"{row['foreseen_s']:.2f}" if row["foreseen_s"] else "–"
        lines.append(
            f"| {row['name']} | {foreseen} | {row['last_rank_s']:.2f} | {row['first_kernel_s']:.3f} | "
            f"{number(row['builds'])} | {number(row['wasted'])} | {number(row['requests'])} |"
        )
    return "\n".join(lines) + "\n"


def picture(rows):
    """Bars of the time until the last rank is warm, and a tick where the formula foresees it."""
    left, width, high = 330, 480, 24
    most = max(row["last_rank_s"] for row in rows)
    parts = []
    for i, row in enumerate(rows):
        y = 34 + i * high
        bar = row["last_rank_s"] / most * width
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(row["name"])}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{max(bar, 1):.1f}" height="16" fill="#4477aa"/>')
        tick = row["foreseen_s"] / most * width
        parts.append(f'<text x="{left + max(bar, tick) + 6:.1f}" y="{y + 12}">{row["last_rank_s"]:.1f}</text>')
        if tick:
            at = left + tick
            parts.append(f'<path d="M{at:.1f} {y - 2}v20" stroke="#cc3311" stroke-width="2"/>')
    height = 44 + len(rows) * high
    title = "Seconds until the last of 8,000 ranks is warm; red: the formula"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="8" y="18" font-size="14">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def main(simulation, check):
    said = subprocess.run([simulation], stdout=subprocess.PIPE, check=True, text=True).stdout
    rows = [json.loads(line) for line in said.splitlines()]
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    made = {PAGE: before + BEGIN + table(rows) + END + rest.split(END)[1], PICTURE: picture(rows)}
    for path, text in made.items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path} is not what the simulation says: run {__file__} {simulation}")


if __name__ == "__main__":
    main(sys.argv[1], "--check" in sys.argv[2:])
