#!/usr/bin/env python3
"""Writes catalogues of the documentation as one page of HTML that needs nothing else.

usage: single-page.py OUTPUT CATALOGUE...

The Markdown of each catalogue is converted by cmark-gfm, page by page, in the order of the topics of its
landing page. Links between pages become links within the page, links to symbols become code.
"""
import base64
import html
import pathlib
import re
import subprocess
import sys

STYLE = """
:root { color-scheme: light dark; --line: #8884; --code: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3, h4, h5 { line-height: 1.2; margin: 2em 0 .5em; }
h2 { border-bottom: 1px solid var(--line); padding-bottom: .2em; }
code, pre { font: .875em/1.45 ui-monospace, monospace; background: var(--code); border-radius: 3px; }
code { padding: .1em .3em; overflow-wrap: break-word; }
pre { padding: .8em; overflow-x: auto; }
pre code { padding: 0; background: none; font-size: 1em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3em .6em; text-align: left; vertical-align: top; }
img { max-width: 100%; }
nav ul { list-style: none; padding-left: 1rem; columns: 16rem; }
#words { font: inherit; width: 100%; box-sizing: border-box; padding: .4em; }
@media print {
  body { max-width: none; margin: 0; font-size: 10pt; }
  #search { display: none; }
  h2 { break-before: page; }
  h1, h2, h3, h4, h5 { break-after: avoid; }
  pre { white-space: pre-wrap; }
  pre, tr { break-inside: avoid; }
  a { color: inherit; text-decoration: none; }
}
"""

# Shows the pages that have all the words; without words, all of them.
SCRIPT = """
const pages = [...document.querySelectorAll('article')];
const texts = pages.map(page => page.textContent.toLowerCase());
const search = () => {
  const words = document.getElementById('words').value.toLowerCase().split(/\\s+/).filter(word => word);
  let found = 0;
  pages.forEach((page, index) => {
    const matches = words.every(word => texts[index].includes(word));
    page.hidden = !matches;
    document.querySelector(`nav a[href="#${page.id}"]`).parentElement.hidden = !matches;
    found += matches;
  });
  document.getElementById('found').textContent = words.length ? `${found} of ${pages.length} pages` : '';
};
document.getElementById('words').addEventListener('input', search);
window.addEventListener('hashchange', () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.closest('article')?.hidden) {
    document.getElementById('words').value = '';
    search();
    target.scrollIntoView();
  }
});
"""


def anchor(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class Catalogue:
    """The pages of one catalogue, the landing page first."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        name = self.folder.stem
        files = {p.stem: p for p in [*self.folder.glob("*.md"), *self.folder.glob("*.tutorial")]}
        landing = files[name].read_text()
        order = [name, *re.findall(r"<doc:([\w/-]+)>", landing), *sorted(files)]
        self.pages = {n: files[n].read_text() for n in dict.fromkeys(order) if n in files}
        for stem in [n for n in files if files[n].suffix == ".tutorial"]:
            self.pages[stem] = self.tutorial(self.pages[stem])

    def tutorial(self, text):
        """The Markdown of a tutorial or of a list of tutorials."""
        lines = ["# " + re.search(r'@Intro\(title: "([^"]*)"\)', text)[1], ""]
        for line in text.splitlines()[1:]:
            line = line.strip()
            section = re.match(r'@(?:Section\(title|Chapter\(name): "([^"]*)"\)', line)
            code = re.match(r'@Code\(name: "([^"]*)", file: "?([^")]*)"?', line)
            image = re.match(r'@Image\(source: "?([^",]*)"?, alt: "([^"]*)"\)', line)
            reference = re.match(r'@TutorialReference\(tutorial: "doc:([^"]*)"\)', line)
            if section:
                lines += ["", f"## {section[1]}", ""]
            elif code:
                content = (self.folder / "Resources" / code[2]).read_text().rstrip()
                lines += ["", f"`{code[1]}`:", "", "```", content, "```", ""]
            elif image:
                lines += ["", f"![{image[2]}]({image[1]})", ""]
            elif reference:
                lines += ["", f"<doc:{reference[1]}>", ""]
            else:
                lines.append("" if line == "}" or line.startswith("@") else line)
        return "\n".join(lines) + "\n"


class Book:
    def __init__(self, folders):
        self.catalogues = [Catalogue(folder) for folder in folders]
        self.titles = {}
        for catalogue in self.catalogues:
            for name, text in catalogue.pages.items():
                self.titles[name] = re.search(r"^# (.*)", text, re.M)[1].replace("\\", "").strip("`")
        self.ids = set()

    def identify(self, text):
        number, result = 1, text
        while result in self.ids:
            number += 1
            result = f"{text}-{number}"
        self.ids.add(result)
        return result

    def link(self, match):
        name = match[1].rsplit("/", 1)[-1]
        if name not in self.titles:
            raise SystemExit(f"single-page: <doc:{match[1]}>: there is no such page: name one that exists")
        return f"[{self.titles[name]}](#{anchor(name)})"

    def markdown(self, text):
        """What cmark-gfm understands, outside of code that is set apart."""
        parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
        for index in range(0, len(parts), 2):
            part = re.sub(r"^@\w+(\([^)]*\))? \{\n(?:.*\n)*?\}$", "", parts[index], flags=re.M)
            part = re.sub(r"^## Topics\n[\s\S]*?(?=^## |\Z)", "", part, flags=re.M)
            part = re.sub(r"<doc:([\w/-]+)>", self.link, part)
            part = re.sub(r"``([^`]+)``", lambda m: f"`{m[1].rsplit('/', 1)[-1]}`", part)
            parts[index] = re.sub(r"^- term ", "- ", part, flags=re.M)
        return "".join(parts)

    def page(self, catalogue, name, text):
        converted = subprocess.run(
            ["cmark-gfm", "--extension", "table"], input=self.markdown(text), text=True, check=True,
            stdout=subprocess.PIPE).stdout
        top = self.identify(anchor(name))

        def heading(match):
            level, content = int(match[1]), match[2]
            if level == 1:
                return f"<h2>{content}</h2>"
            plain = html.unescape(re.sub(r"<[^>]*>", "", content))
            return f'<h{level + 1} id="{self.identify(top + "-" + anchor(plain))}">{content}</h{level + 1}>'

        converted = re.sub(r"<h([1-5])>(.*?)</h\1>", heading, converted)
        converted = re.sub(r'<img src="([^"]*)"', lambda m: self.image(catalogue, m[1]), converted)
        return f'<article id="{top}">\n{converted}</article>\n'

    @staticmethod
    def image(catalogue, name):
        file = next(p for p in (catalogue.folder / "Resources").iterdir() if p.name == name or p.stem == name)
        data = base64.b64encode(file.read_bytes()).decode()
        return f'<img src="data:image/{"svg+xml" if file.suffix == ".svg" else file.suffix[1:]};base64,{data}"'

    def text(self):
        contents, body = [], []
        for catalogue in self.catalogues:
            entries = []
            for name, text in catalogue.pages.items():
                body.append(self.page(catalogue, name, text))
                entries.append(f'<li><a href="#{anchor(name)}">{html.escape(self.titles[name])}</a></li>')
            title = html.escape(self.titles[catalogue.folder.stem])
            contents.append(f"<h3>{title}</h3>\n<ul>{''.join(entries)}</ul>")
        page = "\n".join(
            ["<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
             '<meta name="viewport" content="width=device-width">', "<title>SyncStore: all pages</title>",
             f"<style>{STYLE}</style>", "</head>", "<body>", "<h1>SyncStore: all pages</h1>",
             '<p id="search"><input id="words" type="search" placeholder="Show the pages with these words" '
             'aria-label="Show the pages with these words"> <span id="found"></span></p>',
             "<nav>", *contents, "</nav>", *body, f"<script>{SCRIPT}</script>", "</body>", "</html>", ""])
        broken = set(re.findall(r'href="#([^"$]*)"', page)) - self.ids
        if broken:
            raise SystemExit(f"single-page: links to nothing: {', '.join(sorted(broken))}: correct them")
        return page


if len(sys.argv) < 3:
    raise SystemExit("usage: single-page.py OUTPUT CATALOGUE...")
pathlib.Path(sys.argv[1]).write_text(Book(sys.argv[2:]).text())
