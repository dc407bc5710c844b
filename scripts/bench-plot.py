#!/usr/bin/env python3
"""bench-plot.py RESULTS.jsonl OUT.svg: draws how much longer other stores take than this one, from what `make bench` wrote.

Only times count; of several lines for one workload and peer the last one. The scale is logarithmic: bars to the right of the
line at 1 are slower than SyncStore, bars to the left are faster.
"""

import json
import math
import sys
from xml.sax.saxutils import escape

WORKLOADS = {"put": "put, relaxed", "durable-put": "put, durable", "get": "get", "miss": "get of an absent key",
             "scan": "scan", "transaction": "transaction"}
PEERS = {"lmdb": ("LMDB", "#6b9bc3"), "leveldb": ("LevelDB", "#8fb573"), "rocksdb": ("RocksDB", "#c9a13b"),
         "sqlite": ("SQLite", "#b0728f")}
LEFT, RIGHT, BAR, GAP, TOP = 170, 700, 16, 14, 62


def read(path):
    ratios = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["peer"] in PEERS and row["workload"] in WORKLOADS and row["unit"] in ("ns", "us", "ms", "s"):
                ratios[row["workload"], row["peer"]] = 1 / row["ratio"]
    return ratios


def draw(ratios):
    high = max(max(ratios.values()), 2)
    low = min(min(ratios.values()) / 1.5, 0.5)

    def x(ratio):
        return LEFT + (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low)) * (RIGHT - LEFT)

    parts, y = [], TOP
    for workload, title in WORKLOADS.items():
        rows = [(peer, ratios[workload, peer]) for peer in PEERS if (workload, peer) in ratios]
        if not rows:
            continue
        middle = y + len(rows) * BAR / 2 + 5
        parts.append(f'<text x="{LEFT - 12}" y="{middle:.0f}" text-anchor="end">{escape(title)}</text>')
        for peer, ratio in rows:
            start, end = sorted((x(1), x(ratio)))
            at, anchor = (end + 5, "start") if ratio >= 1 else (start - 5, "end")
            parts.append(
                f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="{BAR - 2}" '
                f'fill="{PEERS[peer][1]}"/>'
                f'<text x="{at:.1f}" y="{y + 11}" font-size="11" text-anchor="{anchor}">{ratio:.2g}</text>')
            y += BAR
        y += GAP
    legend = []
    for index, (name, color) in enumerate(PEERS.values()):
        place = LEFT + index * 110
        legend.append(f'<rect x="{place}" y="34" width="12" height="12" fill="{color}"/>'
                      f'<text x="{place + 18}" y="45">{name}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {y + 10}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#555">',
        f'<text x="{LEFT}" y="20">time compared with SyncStore = 1 (longer to the right; logarithmic)</text>',
        *legend, *parts,
        f'<path d="M{x(1):.1f} {TOP - 6} V{y - GAP + 6}" stroke="#555"/>',
        "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ratios = read(sys.argv[1])
    if not ratios:
        sys.exit(f"bench-plot.py: {sys.argv[1]} has no time of {', '.join(WORKLOADS)} beside {', '.join(PEERS)}")
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(draw(ratios))


main()
