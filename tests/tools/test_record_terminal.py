"""tools/record_terminal.py: a terminal's lines, and the picture that it keeps of a session."""

import pathlib
import re
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import record_terminal  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture, kind):
    """The texts of this class in a picture, in order."""
    root = xml.etree.ElementTree.fromstring(picture)
    return [one.text for one in root.iter(f"{SVG}text") if kind in one.get("class").split()]


class Screen(unittest.TestCase):
    def shown(self, *parts, columns=10):
        screen = record_terminal.Screen(columns)
        for part in parts:
            screen.write(part, 0.0)
        return screen.lines

    def test_a_return_overwrites_and_erasing_ends_the_line(self):
        self.assertEqual(self.shown("10 %\r20\r\n"), ["20 %", ""])
        self.assertEqual(self.shown("a longer\rno\x1b[K"), ["no"])
        self.assertEqual(self.shown("a longer\rno\x1b", "[", "K!"), ["no!"])

    def test_a_line_wraps_when_a_character_comes_behind_the_last_column(self):
        self.assertEqual(self.shown("0123456789"), ["0123456789"])
        self.assertEqual(self.shown("0123456789\r\nx"), ["0123456789", "x"])
        self.assertEqual(self.shown("0123456789abc"), ["0123456789", "abc"])

    def test_an_unknown_control_sequence_is_refused(self):
        for text, name in (("\x1b[2J", r"'\\x1b\[2J'"), ("\t", r"'\\t'"), ("\x1b]0", r"'\\x1b'")):
            with self.assertRaisesRegex(SystemExit, f"the control sequence {name} is not known"):
                self.shown(text)


class Recording(unittest.TestCase):
    def test_a_session_shows_what_its_commands_wrote_in_a_terminal(self):
        commands = ["printf 'first\\rFIRST\\n<&>'; test -t 1 && echo ' terminal'", "echo second >&2"]
        screen, prompts = record_terminal.record(commands, [], pathlib.Path(sys.executable))
        picture = record_terminal.svg(screen, prompts, commands)
        self.assertEqual(texts(picture, "prompt"), [f"$ {command}" for command in commands])
        lines = [f"$ {commands[0]}", "FIRST", "<&> terminal", f"$ {commands[1]}", "second"]
        self.assertEqual(texts(picture, "last"), lines)

    def test_a_still_shows_the_whole_session(self):
        screen, prompts = record_terminal.record(["printf '1 %%\\r'; sleep 0.3; echo 2"], [], pathlib.Path(sys.executable))
        root = xml.etree.ElementTree.fromstring(record_terminal.svg(screen, prompts, []))
        delays = [re.search(r"animation-delay:([\d.]+)s", one.get("style"))[1] for one in root.iter(f"{SVG}text")]
        self.assertEqual(len(delays), 3)
        self.assertGreaterEqual(min(map(float, delays)), record_terminal.POSTER)

    def test_a_command_that_fails_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "false: exit status 1"):
            record_terminal.record(["false"], [], pathlib.Path(sys.executable))

    def test_of_a_line_that_changes_often_the_last_text_and_some_before_it_are_kept(self):
        history = [(i / 100, f"{i} %") for i in range(101)]
        kept = record_terminal.pictures_of(history)
        self.assertEqual(kept[0], (0.0, "0 %"))
        self.assertEqual(kept[-1], (1.0, "100 %"))
        self.assertLessEqual(len(kept), 1 / record_terminal.FRAME + 2)


class KeptPicture(unittest.TestCase):
    def test_it_is_small_and_shows_the_commands_of_the_tool(self):
        picture = (ROOT / "docs" / "images" / "terminal.svg").read_text(encoding="utf-8")
        self.assertLess(len(picture.encode()), 60_000)
        self.assertEqual(texts(picture, "prompt"), [f"$ {command}" for command in record_terminal.COMMANDS])
        # Every command but a quiet one wrote something behind its prompt.
        last = texts(picture, "last")
        for word in ("done ", "score ", "In the beginning", "month,column,forecast"):
            self.assertTrue(any(line.startswith(word) for line in last), word)


if __name__ == "__main__":
    unittest.main()
