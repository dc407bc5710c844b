#!/usr/bin/env python3
"""Explores the protocols of `protocols.py`: each holds, and each of its faults is noticed. Ends with 1 if
not.

Names as arguments: only those. It also fails if a line that a protocol cites is no longer in the sources:
the protocol has to be brought up to date then.
"""

import os
import sys

import machine
from protocols import PROTOCOLS

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def holds(function, on):
    """The number of states, and the execution in which the invariant fails; None if it fails in none."""
    try:
        return machine.explore(*function(on)), None
    except machine.Violation as violation:
        return 0, violation.args[0]


def is_cited(path, line):
    with open(os.path.join(ROOT, path), encoding="utf-8") as source:
        return line in source.read()


def check(name):
    title, faults, sources, function = PROTOCOLS[name]
    missing = [f"{path}: {line}" for path, line in sources if not is_cited(path, line)]
    if missing:
        print(f"{name}: not in the sources any more:", *missing, sep="\n  ")
        return False
    states, trace = holds(function, set())
    if trace:
        print(f"{name}: {title}: FAILS:", *trace, sep="\n  ")
        return False
    unnoticed = [fault for fault in faults if holds(function, {fault})[1] is None]
    print(f"{name}: {title}: {states} states; {len(faults) - len(unnoticed)} of {len(faults)} faults noticed")
    for fault in unnoticed:
        print(f"  not noticed: {fault}")
    return not unnoticed


def main():
    names = sys.argv[1:] or list(PROTOCOLS)
    unknown = [name for name in names if name not in PROTOCOLS]
    if unknown:
        sys.exit(f"check.py: no protocol is called {unknown[0]}: there are {', '.join(PROTOCOLS)}")
    results = [check(name) for name in names]
    sys.exit(0 if all(results) else 1)


main()
