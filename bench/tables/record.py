"""Runs of a table, kept in a file line by line, so that an interrupted table goes on where it stopped."""

import json
from pathlib import Path


class Record:
    """Results by key. A key is what a run depends on; results of other keys stay in the file.

    Reasons of failures are kept too, but a run that failed is tried again. Keys are compared without the fields of
    `ignored`.
    """

    def __init__(self, path, ignored=()):
        self.path, self.ignored = Path(path), ignored
        self.results, self.failures = {}, {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # the last line of a run that was killed
                self._learn(entry)

    def _name(self, key):
        return json.dumps({field: value for field, value in key.items() if field not in self.ignored}, sort_keys=True)

    def _learn(self, entry):
        name = self._name(entry["key"])
        if "result" in entry:
            self.results[name] = entry["result"]
            self.failures.pop(name, None)
        else:
            self.failures[name] = entry["failed"]

    def get(self, key):
        """The result of a key, or None."""
        return self.results.get(self._name(key))

    def failure(self, key):
        """The reason why the last run of a key failed, or None."""
        return self.failures.get(self._name(key))

    def keep(self, key, **outcome):
        """Adds result=... or failed=... to the file."""
        entry = {"key": key, **outcome}
        self._learn(entry)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a") as file:
            file.write(("\n" if torn else "") + json.dumps(entry) + "\n")
