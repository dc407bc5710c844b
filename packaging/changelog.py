"""changelog.py CHANGELOG REVISION MAINTAINER EPOCH: writes the change log in Debian's format.

A section of CHANGELOG.md is an entry. The newest has the time EPOCH, others the day in their heading.
"""

import re
import sys
import textwrap
from datetime import datetime, timezone
from email.utils import format_datetime

path, revision, maintainer, epoch = sys.argv[1:]
text = open(path, encoding="utf-8").read()
newest = datetime.fromtimestamp(int(epoch), timezone.utc)


def plain(words):
    """The words without the marks of Markdown; of a link its text is left."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words)
    return words.replace("**", "").replace("`", "")


def entry(version, day, body, release):
    when = newest if day is None else datetime.fromisoformat(day).replace(tzinfo=timezone.utc)
    lines = [f"sync-store ({version}-{release}) bookworm; urgency=medium", ""]
    for title, items in re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", body, re.M | re.S):
        lines += [f"  [ {title} ]"]
        for item in re.findall(r"^- (.*?)(?=^- |\Z)", items, re.M | re.S):
            words = plain(" ".join(item.split()))
            lines += textwrap.wrap(
                words, 78, initial_indent="  * ", subsequent_indent="    ", break_on_hyphens=False
            )
        lines += [""]
    return "\n".join(lines + [f" -- {maintainer}  {format_datetime(when)}", ""])


sections = re.findall(r"^## (\S+) \((.*?)\)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
if not sections:
    sys.exit(f"changelog: {path}: no section such as \"## 1.2.3 (2026-01-31)\": write one")
for number, (version, day, body) in enumerate(sections):
    print(entry(version, None if number == 0 else day, body, revision if number == 0 else 1))
