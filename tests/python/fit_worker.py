"""One rank of the runs of test_torch_fit_ranks.py, which starts main() in a process. Each writes what it saw as JSON lines."""

import copy
import json
import os
import pathlib
import resource
import signal
import sys
import traceback

import torch
import torch.distributed.fsdp

import penstock
import penstock.torch as ours
from penstock.torch import _sequence_parallel, train
from penstock.torch._fitting import checkpoints, group

CASE, TEXT, FOLDER, RANK = "", "", pathlib.Path(), 0  # of main()
USUAL = {"steps": 10, "batch": 5, "length": 12, "log_every": 0, "seed": 3, "progress": False, "validate_every": 0,
         "average": 0.9, "validate_steps": 4, "rank_timeout": 5}  # fmt: skip


def fit(name, text=None, at=None, of=5, **options):
    """Trains, and writes the losses and the score, or the error, of each rank."""
    curve, norms = [], []

    def note(progress):
        if not progress.warning:
            curve.append(progress.loss)
            norms.append(progress.gradient_norm)

    path = str(text or TEXT)
    if path.endswith(".csv"):
        data = penstock.open_series(path, targets=["a"], horizon=2)
    else:
        data = penstock.open_text(path, validation_fraction=0.2)
    model = penstock.Model(data, width=16, blocks=2, dropout=0.2, seed=of)
    if at is not None:
        at_step(*at)
    try:
        result = ours.fit(model, data, callback=note, **(USUAL | options))
        seen = {"curve": curve, "norms": norms, "validation": result.validation and result.validation.loss, "step": result.last.step}
        seen |= {"interrupted": result.interrupted, "checkpoint_error": result.checkpoint_error}
        seen["answer"] = answer_of(model) if RANK == 0 else None
    except (penstock.Error, RuntimeError) as error:
        seen = {"error": str(error), "kind": type(error).__name__}
    write(name, seen)


def answer_of(model):
    """Returns a number that tells models apart."""
    steps = list(b"the") if model.task == "language" else [[0.1, 0.2]] * 3
    return float(model.forward(steps)[0].sum())


def write(name, seen):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with open(FOLDER / f"{CASE}.{RANK}.jsonl", "a") as file:
        file.write(json.dumps({"name": name, **seen}) + "\n")


def at_version(number):
    """Has this rank take itself for another version."""
    system_info = dict(penstock._core.system_info())
    penstock._core.system_info = lambda: system_info | {"version": f"1.{number}"}


def at_step(rank, step, what):
    """Has a rank send itself a signal in a step."""
    from penstock.torch._fitting import trainer

    before = trainer.Trainer.run_step

    def run_step(self):
        if RANK == rank and self.step == step:
            trainer.Trainer.run_step = before
            os.kill(os.getpid(), what)
        before(self)

    trainer.Trainer.run_step = run_step


def equal():
    """Runs whose curves are those of one process."""
    fit("ddp")
    fit("fsdp", sharding="fsdp", accumulate=2)
    fit("from one", checkpoint=FOLDER / "one", resume=True, sharding="fsdp")
    saved = {"checkpoint": FOLDER / "two", "checkpoint_every": 0}
    fit("stopped", at=(1, 5, signal.SIGTERM), sharding="fsdp", **saved)
    fit("go on", resume=True, **saved)
    for sharding in ("ddp", "fsdp"):
        fit(f"series by {sharding}", text=FOLDER / "series.csv", sharding=sharding)
    guarded()


def guarded():
    """StableTrainer: rank 1 has NaN in a batch, which both skip, and a loss that spikes, after which both return."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    for wrap in (torch.nn.parallel.DistributedDataParallel, torch.distributed.fsdp.fully_shard):
        trainer = ours.StableTrainer(wrap(copy.deepcopy(layer)), learning_rate=1e-3)
        reports = []
        for step in range(30):
            x, y = torch.randn(4, 3) + RANK, torch.randn(4, 2)
            if RANK == 1 and step == 3:
                x[0, 0] = float("nan")
            if RANK == 1 and step == 25:
                y *= 1e4
            reports.append(trainer.train_step(x, y))
        weight = trainer.model.state_dict()
        write(wrap.__name__, {"losses": [r["loss"] for r in reports if not r["skipped"]], "where": reports[3]["where"],
                              "back": [r["rolled_back"] for r in reports],
                              "weights": {name: whole(t) for name, t in weight.items()}})  # fmt: skip


def whole(tensor):
    return getattr(tensor, "full_tensor", lambda: tensor)().flatten().tolist()


def different():
    """What the ranks do not have in common, and what they cannot do."""
    fit("seed", seed=3 + RANK)
    at_version(RANK)
    fit("version")
    at_version(0)
    fit("model", of=5 + RANK)
    other = FOLDER / f"text of {RANK}"
    other.write_text(pathlib.Path(TEXT).read_text() + "x" * RANK)
    fit("data", text=other)
    fit("few", batch=1)
    fit("files", checkpoint=FOLDER / "no checkpoint", resume=True)
    sharing()
    apart()
    full()
    shards()


def sharing():
    """Refusals to divide sequences, in the group of the runs before."""
    spec = {"cell": "mingru", "width": 4, "blocks": 1, "hidden_size": 0, "heads": 1, "convolution": 4, "feed_forward": 0,
            "dropout": 0.0}  # fmt: skip
    data = {"inputs": [], "targets": [], "classes": [], "vocabulary": 5, "horizon": 0}

    def attempt(name, x=None, calls=True, **changed):
        try:
            model = ours.SequenceModel(spec | changed, data)
            if calls:
                model.share_sequences(torch.distributed.group.WORLD)
            if x is not None:
                model(torch.zeros(x, dtype=torch.int64))
            write(name, {})
        except (ValueError, RuntimeError) as error:
            write(name, {"error": str(error)})

    attempt("a cell", cell="lstm" if RANK else "mingru")
    attempt("a width", width=4 + RANK)
    attempt("a chunk", (1, 8 - 6 * RANK))
    attempt("rows", (1 + RANK, 8))
    attempt("chunks", (1, 8 - 5 * RANK))
    _sequence_parallel._AGREE_SECONDS = 0.5
    attempt("absent", calls=RANK == 0)


def apart():
    """Checkpoints in folders of the same name, as two hosts with disks of their own have."""
    own = FOLDER / f"host {RANK}"
    own.mkdir()
    os.chdir(own)
    fit("apart", checkpoint="checkpoint")


def shards():
    """A file that rank 1 alone does not find, for the command line; and one that becomes shorter in a run."""
    path = TEXT if RANK == 0 else FOLDER / "missing.txt"
    write("missing", {"status": train.main([str(path), "-o", str(FOLDER / "missing.model"), "--quiet"])})
    path = FOLDER / f"shard {RANK}.bin"
    with open(path, "wb") as file:
        file.truncate(70_000_000)  # too many to be kept in memory
    data = penstock.open_text(path, tokens="uint8", vocabulary=3, validation_fraction=1e-6)
    try:
        ours.fit(penstock.Model(data, width=4, blocks=1, seed=1), data, **USUAL, callback=lambda _: os.truncate(path, 10))
    except penstock.Error as error:
        write("shorter", {"error": str(error)})


def full():
    """From some step on, rank 1 can write no more than a few bytes into a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY)))
    fit("before", checkpoint=FOLDER / "full", checkpoint_every=1000, steps=4)
    others(FOLDER / "full")
    fit("full", at=(1, 5, signal.SIGUSR1), checkpoint=FOLDER / "full", checkpoint_every=1000, sharding="fsdp")


def others(folder):
    """Goes on from a checkpoint of other data of the same length; and from one that is of another step for rank 1."""
    text = FOLDER / "other text"
    text.write_text(pathlib.Path(TEXT).read_text().swapcase())
    fit("other text", text=text, checkpoint=folder, resume=True)
    read = checkpoints._read

    def read_later(path):
        notes = read(path)
        notes["counters"]["step"] += RANK
        return notes

    checkpoints._read = read_later
    fit("step", checkpoint=folder, resume=True)
    checkpoints._read = read


CASES = {
    "equal": equal,
    "different": different,
    "dies": lambda: fit("dies", at=(1, 3, signal.SIGKILL)),
    "hangs": lambda: fit("hangs", at=(1, 3, signal.SIGSTOP)),
    **dict.fromkeys(("port", "first", "second"), lambda: fit("port")),
}


def main(case, text, folder, environment):
    """Runs a case as a rank of this environment. Error output goes to a file."""
    global CASE, TEXT, FOLDER, RANK
    os.environ.update(environment)
    CASE, TEXT, FOLDER, RANK = case, text, folder, int(environment["RANK"])
    with open(folder / f"{CASE}.{RANK}.err", "w") as errors:
        os.dup2(errors.fileno(), 2)
    torch.set_num_threads(1)
    group._JOIN_SECONDS = 3.0
    status = 1
    try:
        CASES[CASE]()
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)  # as penstock.torch.train does
