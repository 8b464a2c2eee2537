#!/usr/bin/env python3
"""Checks that no paragraph of a page is too long to be read, and no line too wide.

    tools/check_prose.py [PAGE...]     default: every Markdown page but the changelog

Prints one line for each paragraph or list item over 90 words and each line of prose over 120 characters, and exits with
status 1 if there are any. Tables, code, headings and lines that hold nothing but a link may be wider.
"""

import re
import subprocess
import sys
from pathlib import Path

MAX_WORDS = 90
MAX_WIDTH = 120
# History, which nobody rewrites.
LEFT_ALONE = {"CHANGELOG.md"}

ITEM = re.compile(r"\s*([-*+]|\d+[.)]) ")
FENCE = re.compile(r"\s*(```+|~~~+|:::+)")
NOT_PROSE = re.compile(r"\s*(\||#|<|\[[^]]*\]: |!?\[[^]]*\]\([^)]*\)[.,;:]?$)")


def paragraphs(text):
    """Yields (number of the first line, lines) for every paragraph and list item."""
    lines, first, fence, indented = [], 0, "", True
    for number, line in enumerate(text.split("\n"), start=1):
        mark = FENCE.match(line)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark.group(1)
            line = ""
        elif fence:
            continue
        blank = not line.strip()
        # Four blanks begin code, but behind a list item they go on with it.
        code = line.startswith("    ") and not lines and indented
        if blank or code or NOT_PROSE.match(line) or ITEM.match(line):
            if lines:
                yield first, lines
            lines = []
        if blank or code or NOT_PROSE.match(line):
            continue
        indented = not ITEM.match(line) and not line.startswith(" ")
        if not lines:
            first = number
        lines.append(line)
    if lines:
        yield first, lines


def complaints(name, text):
    """What is too long in a page of this name, a line each."""
    found = []
    for first, lines in paragraphs(text):
        words = sum(len(line.split()) for line in lines)
        if words > MAX_WORDS:
            found.append(f"{name}:{first}: a paragraph of {words} words; {MAX_WORDS} are allowed: split it, or make a list")
        for number, line in enumerate(lines, start=first):
            if len(line) > MAX_WIDTH and " " in line.strip():
                found.append(f"{name}:{number}: {len(line)} characters; {MAX_WIDTH} are allowed")
    return found


def pages():
    listed = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split() if name not in LEFT_ALONE]


def main(names):
    found = [line for name in names or pages() for line in complaints(name, Path(name).read_text(encoding="utf-8"))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
