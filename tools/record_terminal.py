#!/usr/bin/env python3
"""Records a session of the program in a terminal of 104 columns, as docs/images/terminal.svg.

    tools/record_terminal.py build/release/penstock      # trains for a minute on two idle cores

The output is what the program wrote, at the places where a terminal shows it. In the picture, a command takes at most
SHOWN seconds: a longer one runs in fast motion. It begins with the whole session for POSTER seconds, and a viewer
without animation, or with the setting for reduced motion, shows that at rest.
"""

import argparse
import codecs
import fcntl
import html
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

from screens import on_both_screens

ROOT = pathlib.Path(__file__).resolve().parents[1]
COLUMNS = 104  # the commands fit, and what the program says of a text
COMMANDS = [
    "penstock train kjv.txt --steps 1334 --output book.safetensors",
    "penstock generate book.safetensors --prompt 'In the beginning' --temperature 0.6 --seed 0 --bytes 167",
    "penstock train sunspots.csv --horizon 12 --output sunspots.safetensors --quiet",
    "penstock predict sunspots.safetensors sunspots.csv --last --long",
]
FILES = [ROOT / "data" / name for name in ("kjv.txt", "sunspots.csv")]
SHOWN, TYPING, FRAME = 5.0, 1.2, 0.2  # seconds: of a command at most, between commands, between pictures of a line
POSTER = 3.0  # seconds at the start in which the whole session is shown, for stills
RULES = """
text { fill: var(--ink); font: 14px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; white-space: pre }
.prompt { fill: var(--blue); font-weight: bold }
.passing { visibility: hidden }
@keyframes hidden { from, to { visibility: hidden } }
@keyframes visible { from, to { visibility: visible } }
@media (prefers-reduced-motion: no-preference) {
  .last { animation-name: hidden }
  .passing { animation-name: visible }
}
"""
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.43, 19, 14  # of a character and around all, in units of the picture


class Screen:
    """The lines of a terminal that never scrolls, and what each of them showed when."""

    def __init__(self, columns=COLUMNS):
        self.columns, self.lines, self.column = columns, [""], 0
        self.history = [[]]  # of each line: (seconds, text)
        self.unfinished = ""  # a control sequence that has come in part

    def write(self, text, seconds):
        """Shows the text as a terminal does, at this time. Exits with a message at a control sequence it does not know."""
        text = self.unfinished + text
        whole = re.sub(r"\x1b(\[[0-9;]*)?\Z", "", text)
        self.unfinished = text[len(whole) :]
        first = len(self.lines) - 1
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x00-\x1f]+|.", whole, re.DOTALL):
            if part == "\n":
                self.new_line()
            elif part == "\r":
                self.column = 0
            elif part == "\x1b[K":
                self.lines[-1] = self.lines[-1][: self.column]
            elif part[0] < " ":
                raise SystemExit(f"tools/record_terminal.py: the control sequence {part!r} is not known: add it to Screen")
            else:
                self.put(part)
        for line in range(first, len(self.lines)):
            self.history[line].append((seconds, self.lines[line]))

    def put(self, text):
        while text:
            if self.column == self.columns:
                self.new_line()
            part, text = text[: self.columns - self.column], text[self.columns - self.column :]
            line = self.lines[-1].ljust(self.column)
            self.lines[-1] = line[: self.column] + part + line[self.column + len(part) :]
            self.column += len(part)

    def new_line(self):
        self.lines.append("")
        self.history.append([])
        self.column = 0


def output_of(command, folder, program):
    """Runs a shell command in a terminal. Returns [(seconds since its start, text)], and exits if the command fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    paths = f"{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "PATH": paths}
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    decoder, parts = codecs.getincrementaldecoder("utf-8")(errors="replace"), []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            break
        parts.append((time.monotonic() - began, decoder.decode(part)))
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"tools/record_terminal.py: {command}: exit status {process.returncode}")
    return parts


def record(commands, files, program):
    """Runs the commands one after the other in a folder with these files. Returns the screen and the lines that commands
    take on it."""
    screen, prompts, now = Screen(), [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            shutil.copy(file, folder)
        for command in commands:
            if screen.column > 0:
                screen.write("\r\n", now)
            if prompts:
                screen.write("\r\n", now)
            first = len(screen.lines) - 1
            screen.write(f"$ {command}\r\n", now)
            prompts += range(first, len(screen.lines) - 1)
            now += TYPING
            parts = output_of(command, folder, program)
            speed = max(1.0, parts[-1][0] / SHOWN) if parts else 1.0
            for seconds, text in parts:
                screen.write(text, now + seconds / speed)
            now += parts[-1][0] / speed + TYPING if parts else TYPING
    return screen, prompts


def pictures_of(history):
    """What a line shows from when on, [(seconds, text)]: its last text, and before that one text every FRAME seconds."""
    kept = []
    for seconds, text in history:
        if kept and text == kept[-1][1]:
            continue
        if len(kept) > 1 and seconds - kept[-2][0] < FRAME:
            kept.pop()
        kept.append((seconds, text))
    return kept


def svg(screen, prompts, commands):
    """The session as a picture, light or dark as the reader's screen is."""
    lines = screen.lines[:-1] if not screen.lines[-1] else screen.lines
    width, height = round(screen.columns * CELL_WIDTH + 2 * MARGIN), len(lines) * CELL_HEIGHT + 2 * MARGIN
    text = []
    for line in range(len(lines)):
        y = MARGIN + (line + 0.75) * CELL_HEIGHT
        shown = pictures_of(screen.history[line])
        for (seconds, content), after in zip(shown, [*shown[1:], None]):
            if not content:
                continue
            begin, length = (seconds, after[0] - seconds) if after else (0.0, seconds)
            times = f"animation-delay:{POSTER + begin:.2f}s;animation-duration:{length:.2f}s"
            kind = "passing" if after else "last prompt" if line in prompts else "last"
            text.append(f'<text class="{kind}" x="{MARGIN}" y="{y:g}" style="{times}">{html.escape(content, quote=False)}</text>')
    picture = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<desc>{html.escape(chr(10).join(commands), quote=False)}</desc>
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="var(--ground)" stroke="var(--faint)"/>
<g xml:space="preserve">
{chr(10).join(text)}
</g>
</svg>
"""
    return on_both_screens(picture, RULES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="the program penstock")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "images" / "terminal.svg")
    options = parser.parse_args()
    if options.program.name != "penstock" or not options.program.is_file():
        sys.exit(f"tools/record_terminal.py: {options.program} is no program called penstock; build it by `make build`")
    screen, prompts = record(COMMANDS, FILES, options.program.resolve())
    options.output.write_text(svg(screen, prompts, COMMANDS), encoding="utf-8")


if __name__ == "__main__":
    main()
