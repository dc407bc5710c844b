#!/usr/bin/env python3
"""Adds a link to a page of a documentation archive, below its title.

usage: link-page.py PAGE.json URL TEXT
"""
import json
import pathlib
import sys

if len(sys.argv) != 4:
    raise SystemExit("usage: link-page.py PAGE.json URL TEXT")
file, url, text = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
page = json.loads(file.read_text())
page.setdefault("references", {})[url] = {
    "identifier": url, "title": text, "titleInlineContent": [{"text": text, "type": "text"}],
    "type": "link", "url": url,
}
page["abstract"] = [*page.get("abstract", []), {"identifier": url, "isActive": True, "type": "reference"}]
file.write_text(json.dumps(page, sort_keys=True))
