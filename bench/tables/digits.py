"""The table of permuted digits: images pixel by pixel, in one random order for all of them."""

import csv
import random
from pathlib import Path

from networks import peers, recurrent
from tasks import DENSE, MINIMAL, Table, Tasks

IMAGES = Path(__file__).resolve().parents[2] / "data" / "digits_sequences.csv"
PIXELS = 64
TRAINED = 1437  # images; the other 360 are scored
TABLE = Table(
    "Permuted digits", ("digits",),
    recurrent((*DENSE, *MINIMAL), (2,)) + peers((2,), ("LSTM", "Transformer")),
    steps=2000, length=PIXELS, scored=(PIXELS,), parameters=50_000)


def write_pixels(folder):
    """Writes the files of a training and a test part, a row for each pixel, and returns their paths.

    Images and pixels have a random order, the same in every call.
    """
    images = {}
    with IMAGES.open(newline="") as file:
        for row in csv.DictReader(file):
            label, pixels = images.setdefault(row["sequence"], (row["label"], []))
            pixels += [row[f"p{i}"] for i in range(8)]
    names, order = list(images), list(range(PIXELS))
    generator = random.Random(0)
    generator.shuffle(names)
    generator.shuffle(order)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "digits_training.csv", folder / "digits_test.csv"
    for path, part in zip(paths, (names[:TRAINED], names[TRAINED:])):
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sequence", "label", "pixel"])
            writer.writerows([name, images[name][0], images[name][1][i]] for name in part for i in order)
    return paths


class Digits(Tasks):
    def __init__(self, folder, *arguments):
        super().__init__(*arguments)
        self.training, self.test = write_pixels(folder)
        self.peer_options = ("--digits", self.training, self.test)

    def data(self, task, length):
        return [self.training, "--no-filters", "--categories", "none", "--validation-fraction", 0]

    async def accuracies(self, trained, path, task):
        scored = await self.runs.json([
            self.program, "evaluate", path, self.test, "--threads", 1, "--device", self.device, "--json"])
        return {str(PIXELS): scored["files"][0]["accuracy"]}
