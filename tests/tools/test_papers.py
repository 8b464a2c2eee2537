"""bench/papers.py with a program of known answers: choice of rates, failures, limits of time, interrupts, records."""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "papers.py"

# Parameters are 2 n² + 10 n + 7 of a width n, and a rate of 0.003 is the best. One line of `calls` for each training.
PROGRAM = """#!{python} -SE
import json, sys, time
if sys.argv[1] == "--version":
    print("penstock 9.9")
    sys.exit()
option = lambda name: sys.argv[sys.argv.index(name) + 1]
if sys.argv[1] == "predict":
    print(json.dumps({{"accuracy": 0.25}}))
elif sys.argv[1] == "evaluate":
    print(json.dumps({{"files": [{{"accuracy": 0.25}}]}}))
elif sys.argv[1] == "info":
    print(json.dumps({{"memory": {{"weights": 1e6, "training_peak": 2e6, "optimizer": 3e6, "state": 1234}}}}))
elif sys.argv[1] == "generate":
    print("256 bytes in each of 1 stream in 0.128 s: 2000 bytes a second", file=sys.stderr)
else:
    n, steps = int(option("--width")), int(option("--steps"))
    if "--learning-rate" in sys.argv:
        rate, seed, cell = option("--learning-rate"), option("--seed"), option("--cell")
        with open({calls!r}, "a") as file:
            file.write(f"{{cell}} {{rate}} {{seed}}\\n")
        if {fails}:
            sys.exit("error: the run was unstable")
        time.sleep({seconds})
    else:
        rate, seed = "0", "0"
    print(json.dumps({{"model": {{"parameters": 2 * n * n + 10 * n + 7}}, 
                      "seconds": steps * (0.03 if option("--cell") == "lstm" else 0.01),
                      "validation": {{"accuracy": (0.75 if rate == "0.003" else 0.5) + 0.01 * int(seed),
                                      "bits_per_byte": (2.0 if rate == "0.003" else 2.5) + 0.1 * int(seed)}}}}))
"""


class Papers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"
        self.record = self.folder / "runs.jsonl"

    def write_program(self, fails="False", seconds=0):
        program = self.folder / "penstock"
        program.write_text(PROGRAM.format(python=sys.executable, calls=str(self.calls), fails=fails, seconds=seconds))
        program.chmod(0o755)
        return program

    def command(self, *options, program=None, cells=("gru",), table="recall"):
        return [sys.executable, SCRIPT, table, program or self.write_program(), "--record", self.record, "--networks",
                *cells, "--steps", "20", *map(str, options)]

    def run_table(self, *options, status=0, **others):
        done = subprocess.run(self.command(*options, **others), capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def rows(self, text):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
        return {row[0]: row[1:] for row in rows[2:]}

    def trained(self):
        return sorted(self.calls.read_text().splitlines()) if self.calls.exists() else []

    def test_seeds_follow_at_the_best_rate(self):
        rows = self.rows(self.run_table("--seeds", 3, "--jobs", 4))
        self.assertEqual(set(rows), {"gru, 1 block", "gru, 2 blocks"})
        # The widest of at most 100,000 parameters is 220: 96,800 + 2,200 + 7.
        self.assertEqual(rows["gru, 1 block"][:-1], ["99,007", "0.003", "3", "76.0 (75.0 - 77.0)", "25.0", "0.2"])
        runs = ["gru 0.001 0", "gru 0.003 0", "gru 0.003 1", "gru 0.003 2", "gru 0.01 0"]
        self.assertEqual(self.trained(), sorted(2 * runs))

    def test_memory_of_a_gpu_is_what_is_planned(self):
        rows = self.rows(self.run_table("--seeds", 1, "--device", "cuda"))
        self.assertEqual(rows["gru, 1 block"][-1], "6")

    def test_a_finished_table_starts_nothing(self):
        first = self.run_table("--seeds", 1)
        self.calls.unlink()
        self.assertEqual(self.run_table("--seeds", 1), first)
        self.assertEqual(self.trained(), [])

    def test_a_failed_run_is_shown_and_loses_no_other(self):
        fails = self.write_program(fails="cell == 'lstm' or seed == '1'")
        text = self.run_table("--seeds", 3, program=fails, cells=("gru", "lstm"), status=1)
        rows = self.rows(text)
        reason = "failed: penstock ended with status 1: error: the run was unstable"
        self.assertEqual(rows["lstm, 1 block"][3], reason)
        self.assertEqual(rows["gru, 1 block"][2:4], ["2", "76.0 (75.0 - 77.0)"])
        self.assertIn(f"gru, 1 block: 1 of 3 seeds {reason}", text)
        self.assertEqual(self.rows(self.run_table("--seeds", 3, cells=("gru", "lstm")))["lstm, 1 block"][2], "3")

    def test_a_rate_that_fails_is_not_the_best(self):
        rows = self.rows(self.run_table("--seeds", 1, program=self.write_program(fails="rate == '0.003'")))
        self.assertEqual(rows["gru, 1 block"][1:4], ["0.001", "1", "50.0"])

    def test_time_that_is_over_ends_runs_and_keeps_finished_ones(self):
        slow = self.write_program(seconds=60)
        began = time.monotonic()
        rows = self.rows(self.run_table("--seeds", 1, "--minutes", 0.1, program=slow))
        self.assertLess(time.monotonic() - began, 40)
        self.assertRegex(rows["gru, 1 block"][3], "left out: (cut off|no time)")
        rows = self.rows(self.run_table("--seeds", 1))
        self.assertEqual(rows["gru, 1 block"][2], "1")

    def test_an_interrupt_prints_what_is_finished(self):
        slow = self.write_program(seconds="60 if seed == '1' else 0")
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number), subprocess.Popen(
                    self.command("--seeds", 2, "--jobs", 9, program=slow), stdout=subprocess.PIPE, text=True,
                    cwd=self.folder) as process:
                while sum(run.endswith(" 1") for run in self.trained()) < 2:  # of both networks
                    time.sleep(0.05)
                process.send_signal(number)
                text, _ = process.communicate()
                self.assertEqual(process.returncode, 128 + number)
                self.assertEqual(self.rows(text)["gru, 1 block"][2:4], ["1", "75.0"])
                self.assertIn("gru, 1 block: 1 of 2 seeds left out: interrupted", text)
            self.calls.unlink()

    def test_show_prints_the_record_of_another_version(self):
        printed = self.run_table("--seeds", 1)
        changed = [json.loads(line) for line in self.record.read_text().splitlines()]
        for entry in changed:
            entry["key"]["version"] = "penstock 1.0"
        self.record.write_text("".join(json.dumps(entry) + "\n" for entry in changed))
        self.assertEqual(self.run_table("--seeds", 1, "--show", program="/nowhere"), printed)

    def test_characters_have_equal_time(self):
        text = self.run_table("--seeds", 2, table="characters", cells=("gru", "lstm"))
        # lstm takes 0.03 s a step and gru 0.01, so gru has 60 steps in the time of 20.
        self.assertIn("Steps in that time: gru, 3 blocks 60, lstm, 3 blocks 20.", text)
        self.assertEqual(text.count("| gru, 3 blocks | 998,"), 4)
        self.assertEqual(text.count("2.050 (2.000 - 2.100) | 0.2 |"), 2)
        self.assertEqual(text.count("2.050 (2.000 - 2.100) | 0.6 |"), 6)
        speeds = "| gru, 3 blocks | 0.500 ms, 1,234 B | 0.500 ms, 1,234 B | 0.500 ms, 1,234 B |"
        self.assertIn(speeds, text)
        first = sum(run.startswith("gru 0.003 0") for run in self.trained())
        self.assertEqual(first, 4)  # two corpora, at equal steps and in equal time

    def test_digits_are_scored_on_other_images(self):
        rows = self.rows(self.run_table("--seeds", 1, table="digits"))
        self.assertEqual(rows["gru, 2 blocks"][2:4], ["1", "25.0"])
        written = [(self.folder / "build" / "papers" / f"digits_{part}.csv").read_text().splitlines()
                   for part in ("training", "test")]
        self.assertEqual([len(lines) for lines in written], [1 + 1437 * 64, 1 + 360 * 64])
        names = [{line.split(",")[0] for line in lines[1:]} for lines in written]
        self.assertEqual(len(names[0] | names[1]), 1797)

    def test_times_of_layers_and_their_failures_are_shown(self):
        lengths = [2**k for k in range(6, 17)]
        key = {"lengths": lengths, "width": 256, "device": "cpu", "version": "torch 2.10"}
        times = {str(n): {"ms": n / 64, "least": n / 128, "most": n / 32, "memory_mb": 1.0} for n in lengths[:-1]}
        with self.record.open("w") as file:
            print(json.dumps({"key": {"layer": "LSTM", **key}, "result": {"lengths": times, "wall": 1.0}}), file=file)
            print(json.dumps({"key": {"layer": "attention", **key}, "failed": "out of memory"}), file=file)
            missing = {**dict(list(times.items())[:2]), "256": {"failed": "no kernel"}}
            print(json.dumps({"key": {"layer": "MinGRU", **key}, "result": {"lengths": missing, "wall": 1.0}}),
                  file=file)
        text = self.run_table("--show", table="parallel", cells=("LSTM", "MinGRU", "attention"), status=1)
        self.assertIn("| 64 | 1 (0.5 - 2) | 1 (0.5 - 2) |", text)
        self.assertIn("| 256 | 4 (2 - 8) | failed: no kernel |", text)
        self.assertIn("| 32,768 | 512 (256 - 1,024) | - |", text)
        self.assertIn("| 65,536 | over 20 s | - |", text)
        self.assertIn("attention: failed: out of memory.", text)

    def test_options_out_of_range_are_refused(self):
        for options, words in {("--jobs", 0): "--jobs must be at least 1, not 0",
                               ("--minutes", 0): "--minutes must be above 0, not 0",
                               ("--rates", 0): "--rates must be above 0 and finite, not 0",
                               ("--networks", "gru, 9 blocks"): "--networks has gru, 9 blocks, and recall has",
                               ("--only", "parity"): "--only has parity, and recall has recall"}.items():
            done = subprocess.run(self.command(*options), capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
