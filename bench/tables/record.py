"""Runs of a table, kept in a file line by line, so that an interrupted table goes on where it stopped."""

import json
from pathlib import Path


class Record:
    """Results by key. A key is what a run depends on; results of other keys stay in the file."""

    def __init__(self, path):
        self.path = Path(path)
        self.results = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a run that was killed
                self.results[self._name(entry["key"])] = entry["result"]

    @staticmethod
    def _name(key):
        return json.dumps(key, sort_keys=True)

    def get(self, key):
        return self.results.get(self._name(key))

    def result(self, key, run):
        """The result of a key: the one that is kept, or that of run(), which is kept then."""
        name = self._name(key)
        if name not in self.results:
            self.results[name] = run()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
            with self.path.open("a") as file:
                file.write(("\n" if torn else "") +
                           json.dumps({"key": key, "result": self.results[name]}) + "\n")
        return self.results[name]
