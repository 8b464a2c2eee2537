"""Tables of the papers on recurrent networks, each by one command: what a network learns, at equal parameters.

    python3 bench/papers.py tracking build/release/penstock
    python3 bench/papers.py parallel --picture docs/images/parallel_cpu.svg

Recurrent networks are trained by Penstock; a Transformer and torch.nn.LSTM by PyTorch. Every network has the best of
three learning rates and the same seeds and steps. A table that was interrupted goes on where it stopped: each run is a
line of --record. Without PyTorch its networks are left out, and the table says so.
"""

import argparse
import importlib.util
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "tables"))
import parallel  # noqa: E402
from record import Record  # noqa: E402
from tasks import TABLES, Runner, markdown  # noqa: E402


def over_time(parser, record, arguments):
    if not importlib.util.find_spec("torch"):
        parser.error("the layers of this table are PyTorch's modules: pip install torch")
    results = parallel.run(record, arguments.device)
    print(parallel.markdown(results, arguments.device))
    if arguments.picture:
        parallel.plot(results, arguments.picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*TABLES, "parallel"])
    parser.add_argument("program", nargs="?", default="penstock", help="penstock, as it was built [penstock]")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of the optimiser, instead of the table's")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--record", type=Path, help="file of finished runs [build/papers/TABLE.jsonl]")
    parser.add_argument("--only", nargs="+", help="tasks of the table")
    parser.add_argument("--picture", help="parallel: an SVG or PNG file")
    arguments = parser.parse_args()
    record = Record(arguments.record or Path("build/papers") / f"{arguments.table}.jsonl")
    if arguments.table == "parallel":
        return over_time(parser, record, arguments)
    if shutil.which(arguments.program) is None:
        parser.error(f"{arguments.program} is no program: build it by make, and give its path")
    if arguments.seeds < 1:
        parser.error(f"--seeds must be at least 1, not {arguments.seeds}")
    table = TABLES[arguments.table]
    if unknown := set(arguments.only or ()) - set(table.tasks):
        parser.error(f"--only has {', '.join(sorted(unknown))}; {arguments.table} has {', '.join(table.tasks)}")
    if arguments.only:
        table = table._replace(tasks=tuple(arguments.only))
    left_out = "" if importlib.util.find_spec("torch") else "PyTorch is not installed: its networks are left out."
    nets = [net for net in table.nets if net.cell or not left_out]
    runner = Runner(table, record, arguments.program, arguments.device, arguments.steps)
    results = {}
    for task in table.tasks:
        for net in nets:
            results[net, task] = runner.runs(net, task, arguments.seeds)
            rate, runs = results[net, task]
            scores = ", ".join(f"{run['accuracy'][str(table.scored[0])]:.1%}" for run in runs)
            print(f"papers.py: {task}: {net.name}: {scores} at rate {rate:g}", file=sys.stderr)
    print(markdown(table, results, arguments.seeds))
    if left_out:
        print(f"\n{left_out}")


if __name__ == "__main__":
    main()
