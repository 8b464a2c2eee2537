"""Labels of texts: compares `penstock train TABLE` with its defaults with scikit-learn's usual classifiers of texts, on lines
of the Bible, of C++, of Python and of English about software from this repository. Prints the table of
docs/results/labelled_texts.md.

    python3 -m venv build/texts && build/texts/bin/pip install scikit-learn
    build/texts/bin/python bench/quality/labelled_texts.py build/release/penstock
"""

import csv
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {"bible": ["data/kjv.txt"], "C++": ["src/**/*.cc", "apps/**/*.cc"], "English": ["docs/*.md", "CHANGELOG.md"],
           "Python": ["python/**/*.py", "bench/**/*.py", "tests/**/*.py"]}
LINES, SHORTEST, LONGEST = 1000, 20, 200  # of each label; bytes
SEEDS = [0, 1, 2]
PEERS = {
    "scikit-learn, TF-IDF of 1 to 4 characters, logistic regression":
        lambda: make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 4), sublinear_tf=True), LogisticRegression(max_iter=1000)),
    "scikit-learn, TF-IDF of words, logistic regression": lambda: make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)),
    "scikit-learn, naive Bayes of words": lambda: make_pipeline(CountVectorizer(), MultinomialNB()),
}


def rows():
    """Different texts and their labels, shuffled."""
    drawn, found = random.Random(0), []
    for label, patterns in SOURCES.items():
        paths = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        lines = {line.strip() for path in paths for line in path.read_text(encoding="utf-8").splitlines()}
        lines = sorted(line for line in lines if SHORTEST <= len(line) <= LONGEST)
        found += [(line, label) for line in drawn.sample(lines, LINES)]
    drawn.shuffle(found)
    return found


def write(path, table):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *table])


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(program, folder, seed):
    before, model = cpu_seconds(), folder / "model.safetensors"
    common = ["--threads", "1", "--json"]
    subprocess.run([program, "train", folder / "train.csv", "--seed", str(seed), "--quiet", "--force", "--output", model, *common],
                   check=True, capture_output=True)
    seconds = cpu_seconds() - before
    said = subprocess.run([program, "evaluate", model, folder / "test.csv", *common], check=True, capture_output=True, text=True)
    return json.loads(said.stdout)["files"][0]["accuracy"], seconds


def main():
    table = rows()
    training = len(table) * 4 // 5
    print("| | accuracy | CPU seconds to train |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder / "train.csv", table[:training])
        write(folder / "test.csv", table[training:])
        results = [ours(sys.argv[1], folder, seed) for seed in SEEDS]
        print(f"| penstock, two layers of minGRU, seeds {SEEDS[0]} to {SEEDS[-1]} | {', '.join(f'{a:.1%}' for a, _ in results)} | "
              f"{', '.join(f'{s:.1f}' for _, s in results)} |")
    texts, labels = zip(*table)
    for name, make in PEERS.items():
        model, begin = make(), time.process_time()
        model.fit(texts[:training], labels[:training])
        seconds = time.process_time() - begin
        print(f"| {name} | {model.score(texts[training:], labels[training:]):.1%} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
