"""Tables of the papers on recurrent networks, each by one command: what a network learns, at equal parameters.

    python3 bench/papers.py tracking build/release/penstock
    python3 bench/papers.py recall build/release/penstock --device cuda --jobs 12 --minutes 9
    python3 bench/papers.py parallel --picture docs/images/parallel_cpu.svg

Recurrent networks are trained by Penstock; a Transformer and torch.nn.LSTM by PyTorch. Every network has the best of
three learning rates and the same seeds and steps. Each finished run is a line of --record, and a table that was
interrupted goes on where it stopped. A run that fails is tried again then, and shown as failed until it succeeds.
Without PyTorch its networks are left out, and the table says so. Exit status: 1 if a run failed.
"""

import argparse
import asyncio
import importlib.metadata
import importlib.util
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tables"))
import parallel  # noqa: E402
import tasks  # noqa: E402
from networks import method  # noqa: E402
from record import Record  # noqa: E402
from runs import Runs  # noqa: E402

TORCH = importlib.util.find_spec("torch") is not None


def over_time(parser, record, arguments):
    if not TORCH:
        parser.error("the layers of this table are PyTorch's modules: pip install torch")
    results = parallel.run(record, arguments.device)
    print(parallel.markdown(results, arguments.device))
    if arguments.picture:
        parallel.plot(results, arguments.picture)


def version_of(program):
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip()


def versions(nets, arguments):
    """{net: the program that trains it}; a part of the record's keys."""
    if arguments.show:
        return dict.fromkeys(nets, "any")
    ours = version_of(arguments.program)
    peer = f"torch {importlib.metadata.version('torch')}" if TORCH else ""
    return {net: ours if net.cell else peer for net in nets}


async def until_interrupted(runs, work):
    """The result of `work`, which a signal ends early, and the number of that signal, or 0."""
    received = []

    def interrupt(number):
        received.append(number)
        runs.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
    return await work, received[0] if received else 0


async def accuracy(record, table, nets, arguments):
    seconds = 0 if arguments.show else None if arguments.minutes is None else 60 * arguments.minutes
    runs = Runs(record, arguments.jobs, seconds)
    made = tasks.Tasks(table, runs, arguments.program, arguments.device, arguments.steps, versions(nets, arguments))
    results, interrupted = await until_interrupted(runs, made.all(nets, arguments.seeds))
    print(tasks.markdown(table, results, arguments.steps))
    print(method(results, arguments.seeds, arguments.device))
    if interrupted:
        return 128 + interrupted
    return int(any(each.failed for outcome in results.values() for each in outcome.missing))


def chosen(parser, arguments):
    """The table with the tasks and the networks that were asked for."""
    table = tasks.TABLES[arguments.table]
    if unknown := set(arguments.only or ()) - set(table.tasks):
        parser.error(f"--only has {', '.join(sorted(unknown))}; {arguments.table} has {', '.join(table.tasks)}")
    kinds = list(dict.fromkeys(net.cell or net.kind for net in table.nets))
    if unknown := set(arguments.networks or ()) - set(kinds):
        parser.error(f"--networks has {', '.join(sorted(unknown))}; {arguments.table} has {', '.join(kinds)}")
    nets = [net for net in table.nets if (net.cell or net.kind) in (arguments.networks or kinds)]
    return table._replace(tasks=tuple(arguments.only or table.tasks)), nets


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*tasks.TABLES, "parallel"])
    parser.add_argument("program", nargs="?", default="penstock", help="penstock, as it was built [penstock]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of the optimiser, instead of the table's")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs that go side by side")
    parser.add_argument("--minutes", type=float, metavar="M",
                        help="start no run that would not end within M minutes, end what still runs then, and print "
                             "the table of finished runs")
    parser.add_argument("--record", type=Path, help="file of finished runs [build/papers/TABLE.jsonl]")
    parser.add_argument("--show", action="store_true",
                        help="print the table of the record, of any version of the programs, and start nothing")
    parser.add_argument("--only", nargs="+", metavar="TASK", help="tasks of the table")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="cells and kinds of networks of the table")
    parser.add_argument("--picture", help="parallel: an SVG or PNG file")
    arguments = parser.parse_args()
    for name in ("seeds", "jobs", "steps"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")
    if arguments.minutes is not None and arguments.minutes <= 0:
        parser.error(f"--minutes must be above 0, not {arguments.minutes:g}")
    if arguments.table == "parallel" and arguments.jobs > 1:
        parser.error("--jobs: a table of times needs the machine alone: leave it out")
    return parser, arguments


def main():
    parser, arguments = parse()
    record = Record(arguments.record or Path("build/papers") / f"{arguments.table}.jsonl",
                    ignored=("version",) if arguments.show else ())
    if arguments.table == "parallel":
        return over_time(parser, record, arguments)
    if not arguments.show and shutil.which(arguments.program) is None:
        parser.error(f"{arguments.program} is no program: build it by make, and give its path")
    table, nets = chosen(parser, arguments)
    left_out = not TORCH and not arguments.show and any(net.kind for net in nets)
    status = asyncio.run(accuracy(record, table, [net for net in nets if net.cell or not left_out], arguments))
    if left_out:
        print("\nPyTorch is not installed: its networks are left out.")
    return status


if __name__ == "__main__":
    sys.exit(main())
