"""Tables of the papers on recurrent networks, each by one command: what a network learns, at equal parameters.

    python3 bench/papers.py tracking build/release/penstock
    python3 bench/papers.py recall build/release/penstock --device cuda --jobs 12 --minutes 9
    python3 bench/papers.py parallel --picture parallel.svg

Recurrent networks are trained by Penstock; a Transformer and torch.nn.LSTM by PyTorch. Every network has the best of
the same learning rates, and the same seeds and steps. Each finished run is a line of --record, and a table that was
interrupted goes on where it stopped. A run that fails is tried again then, and shown as failed until it succeeds.
Without PyTorch its networks are left out, and the table says so. Exit status: 1 if a run failed.

    tracking    word problems of groups, modular arithmetic and parity, scored at lengths beyond the trained one
    recall      associative recall
    copying     selective copying of 16 tokens in 4,096 steps
    digits      permuted digits, pixel by pixel
    characters  bits a byte at equal steps and in equal time; speed and memory of generation behind long texts
    parallel    a layer's pass forwards and backwards over sequences of 64 to 65,536 steps
    long        the same and its memory at 65,536 steps, for more layers
"""

import argparse
import asyncio
import importlib.metadata
import importlib.util
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench" / "tables"), str(ROOT / "tools")]
import characters  # noqa: E402
import digits  # noqa: E402
import layers  # noqa: E402
import plot_results  # noqa: E402
import tasks  # noqa: E402
from networks import LEARNING_RATES, method  # noqa: E402
from record import Record  # noqa: E402
from runs import Missing, Runs  # noqa: E402

TORCH = importlib.util.find_spec("torch") is not None
ACCURACY = {**tasks.TABLES, "digits": digits.TABLE}
TIMES = tuple(layers.LAYERS)
WORK = Path("build/papers")


def parts_of(table):
    """The tasks and the networks of a table. A layer's name is its network."""
    if table in TIMES:
        return (), layers.LAYERS[table]
    if table == "characters":
        return characters.CORPORA, characters.NETS
    return ACCURACY[table].tasks, ACCURACY[table].nets


def names_of(net):
    """What --networks may call it: its cell or kind, or its name in the table."""
    return (net,) if isinstance(net, str) else (net.cell or net.kind, net.name)


def torch_version():
    return f"torch {importlib.metadata.version('torch')}" if TORCH else ""


def versions(nets, arguments):
    """{network: the program that trains it}; a part of the record's keys."""
    if arguments.show or arguments.table in TIMES:
        return dict.fromkeys(nets, torch_version())
    ours = subprocess.run([arguments.program, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return {net: ours if net.cell else torch_version() for net in nets}


async def table_of(runs, of_tasks, nets, arguments):
    """Runs a table. Returns its text and what is missing."""
    name, device = arguments.table, arguments.device
    if name in TIMES:
        found = await layers.Layers(name, runs, device, torch_version()).all(nets)
        return layers.markdown(name, found, device), [each for each in found.values() if isinstance(each, Missing)]
    how = (runs, arguments.program, device, arguments.steps, arguments.rates)
    if name == "characters":
        made = characters.Characters(*how, versions(characters.NETS, arguments), WORK)
        outcomes, generated, steps = await made.all(nets, of_tasks, arguments.seeds)
        text = characters.markdown(outcomes, generated, steps, made.steps, device, made.precision)
    else:
        table, its_versions = ACCURACY[name], versions(nets, arguments)
        of_table = (table, *how, its_versions)
        made = digits.Digits(WORK, *of_table) if name == "digits" else tasks.Tasks(*of_table)
        outcomes, generated = await made.all(nets, of_tasks, arguments.seeds), {}
        text = tasks.markdown(table, outcomes, made.steps, made.precision)
    missing = [each for outcome in outcomes.values() for each in outcome.missing]
    missing += [each for each in generated.values() if isinstance(each, Missing)]
    return f"{text}\n\n{method(outcomes, arguments.seeds, arguments.rates, device)}", missing


async def run(record, of_tasks, nets, arguments):
    """Prints the table, also if a signal ends it early. Returns the exit status."""
    seconds = 0 if arguments.show else None if arguments.minutes is None else 60 * arguments.minutes
    runs = Runs(record, arguments.jobs, seconds)
    received = []

    def interrupt(number):
        received.append(number)
        runs.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
    try:
        text, missing = await table_of(runs, of_tasks, nets, arguments)
    finally:
        runs.stop()  # what an error left running
    print(text)
    if arguments.picture:
        Path(arguments.picture).write_text(plot_results.svg(plot_results.picture_of_papers(arguments.table, text)))
    if received:
        return 128 + received[0]
    return int(any(each.failed for each in missing))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*ACCURACY, "characters", *TIMES])
    parser.add_argument("program", nargs="?", default="penstock", help="penstock, as it was built [penstock]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of the optimiser, instead of the table's")
    parser.add_argument("--rates", type=float, nargs="+", metavar="RATE", default=LEARNING_RATES,
                        help="learning rates to try; each network keeps its best "
                             f"[{' '.join(map(str, LEARNING_RATES))}]")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs that go side by side")
    parser.add_argument("--minutes", type=float, metavar="M",
                        help="start no run that would not end within M minutes, end what still runs then, and print "
                             "the table of finished runs")
    parser.add_argument("--record", type=Path, help=f"file of finished runs [{WORK}/TABLE.jsonl]")
    parser.add_argument("--show", action="store_true",
                        help="print the table of the record, of any version of the programs, and start nothing")
    parser.add_argument("--only", nargs="+", metavar="TASK", help="tasks or corpora of the table")
    parser.add_argument("--networks", nargs="+", metavar="NAME",
                        help="networks by cell, kind or name, such as gru or 'gru, 1 block', or layers of the table")
    parser.add_argument("--picture", metavar="FILE", help="draw the table as an SVG file; needs matplotlib")
    return parser, parser.parse_args()


def chosen(parser, arguments):
    """The tasks and the networks that were asked for."""
    of_tasks, nets = parts_of(arguments.table)
    names = list(dict.fromkeys(name for net in nets for name in names_of(net)))
    for option, asked, known in (("--only", arguments.only, of_tasks), ("--networks", arguments.networks, names)):
        if unknown := set(asked or ()) - set(known):
            has = "; ".join(known) or "none"
            parser.error(f"{option} has {'; '.join(sorted(unknown))}, and {arguments.table} has {has}")
    wanted = set(arguments.networks or names)
    return tuple(arguments.only or of_tasks), [net for net in nets if wanted.intersection(names_of(net))]


def check(parser, arguments):
    for name in ("seeds", "jobs", "steps"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")
    if not all(0 < rate < math.inf for rate in arguments.rates):
        parser.error(f"--rates must be above 0 and finite, not {' '.join(f'{rate:g}' for rate in arguments.rates)}")
    if arguments.minutes is not None and arguments.minutes <= 0:
        parser.error(f"--minutes must be above 0, not {arguments.minutes:g}")
    if arguments.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture needs matplotlib: pip install matplotlib")
    if arguments.table in TIMES:
        if arguments.jobs > 1:
            parser.error("--jobs: a table of times needs the machine alone: leave it out")
        if not TORCH and not arguments.show:
            parser.error("the layers of this table are PyTorch's modules: pip install torch")
    elif not arguments.show and shutil.which(arguments.program) is None:
        parser.error(f"{arguments.program} is no program: build it by make, and give its path")


def main():
    parser, arguments = parse()
    check(parser, arguments)
    of_tasks, nets = chosen(parser, arguments)
    left_out = not TORCH and not arguments.show and any(not isinstance(net, str) and net.kind for net in nets)
    if left_out:
        nets = [net for net in nets if net.cell]
    record = Record(arguments.record or WORK / f"{arguments.table}.jsonl",
                    ignored=("version", "text") if arguments.show else ())
    status = asyncio.run(run(record, of_tasks, nets, arguments))
    if left_out:
        print("\nPyTorch is not installed: its networks are left out.")
    return status


if __name__ == "__main__":
    sys.exit(main())
