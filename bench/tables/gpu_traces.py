"""What profilers say of layers on a GPU: launches, sectors and bytes by ncu, overlap by a trace. For bench/seeds.py.

    python3 gpu_traces.py CASE      runs a case once between marks of the profiler, for ncu
"""

import csv
import io
import shutil
import subprocess
import sys

import penstock.torch
import torch

METRICS = {
    "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "shared": "smsp__inst_executed_op_shared_ld.sum",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
}
SCALES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}


def scan(dtype, rows=8, steps=8192, channels=1024):
    a, b = (torch.rand(rows, steps, channels, device="cuda").to(dtype) for _ in range(2))
    return lambda: penstock.torch.scan(a, b), 3 * a.numel() * a.element_size()


def layer(kind, dtype, rows, steps, hidden):
    made = kind(hidden, hidden, batch_first=True).to("cuda", dtype)
    x = torch.randn(rows, steps, hidden, device="cuda").to(dtype)
    weights = sum(p.numel() for p in made.parameters())
    return lambda: made(x), (2 * x.numel() + weights) * x.element_size()


CASES = {
    "scan, f32, 8, 8192, 1024": lambda: scan(torch.float32),
    "scan, bf16, 8, 8192, 1024": lambda: scan(torch.bfloat16),
    "minGRU, f32, 64, 1024, 256": lambda: layer(penstock.torch.MinGRU, torch.float32, 64, 1024, 256),
    "minGRU, bf16, 8, 4096, 1024": lambda: layer(penstock.torch.MinGRU, torch.bfloat16, 8, 4096, 1024),
    "minLSTM, bf16, 8, 4096, 1024": lambda: layer(penstock.torch.MinLSTM, torch.bfloat16, 8, 4096, 1024),
    "LSTM, bf16, 16, 1024, 512": lambda: layer(penstock.torch.LSTM, torch.bfloat16, 16, 1024, 512),
}


def child(case):
    call, _ = CASES[case]()
    with torch.no_grad():
        call()  # plans and compiles
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def kernels_of(text):
    """[{metric: value}] of ncu's CSV, a kernel each, with its name."""
    lines = text[text.index('"ID"'):]
    found = {}
    for row in csv.DictReader(io.StringIO(lines)):
        kernel = found.setdefault(row["ID"], {"name": row["Kernel Name"].partition("(")[0]})
        value = float(row["Metric Value"].replace(",", "")) * SCALES.get(row["Metric Unit"], 1)
        kernel[next(name for name, metric in METRICS.items() if metric == row["Metric Name"])] = value
    return list(found.values())


def counters(_, quick):
    """Launches, sectors a request and bytes of memory

    A forward pass after the first, by ncu. "Least" is reading and writing each of x, y and the weights once; a second
    level cache of 50 MB keeps a part of what is written. Loads by the copy engine make no requests of threads. A request
    is one load of 32 threads, a sector 32 bytes: 16 sectors a request are ideal for loads of 16 bytes a thread, 4 for
    loads of 4 bytes."""
    if shutil.which("ncu") is None:
        return "ncu is not on the PATH: nothing was counted."
    lines = ["| case | kernel | sectors a request | loads from shared memory | bytes moved | times the least |",
             "|---|---|---:|---:|---:|---:|"]
    for case in list(CASES)[:2] if quick else CASES:
        command = ["ncu", "--csv", "--profile-from-start", "off", "--metrics", ",".join(METRICS.values()),
                   sys.executable, __file__, case]
        result = subprocess.run(command, capture_output=True, text=True)
        if '"ID"' not in result.stdout:
            lines.append(f"| {case} | ncu failed: {(result.stdout + result.stderr)[-200:]!r} | | | | |")
            continue
        kernels = kernels_of(result.stdout)
        least = CASES[case]()[1]
        moved = sum(k["read"] + k["written"] for k in kernels)
        for n, k in enumerate(kernels):
            requests = f"{k['sectors'] / k['requests']:.2f}" if k["requests"] else "none"
            ends = [f"{moved / 1e6:,.0f} MB", f"{moved / least:.2f}"] if n == 0 else ["", ""]
            lines.append(f"| {f'{case}: {len(kernels)} launches' if n == 0 else ''} | {k['name']} | {requests} | "
                         f"{k['shared']:,.0f} | " + " | ".join(ends) + " |")
    return "\n".join(lines)


def intervals(events, kinds):
    """Merged [begin, end] in microseconds of the events of some kinds."""
    merged = []
    for event in sorted((e for e in events if e.get("cat") in kinds), key=lambda e: e["ts"]):
        begin, end = event["ts"], event["ts"] + event["dur"]
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def common(first, second):
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in first for b in second)


def overlap(_, quick):
    """Copies beside computation

    Batches of an LSTM (bf16, 64 rows of 512 steps, I = H = 512) come from pinned memory on a stream of their own while
    the batch before is computed; a trace of PyTorch's profiler says how much of the copies is hidden."""
    import json
    import tempfile

    batches = 4 if quick else 12
    made = penstock.torch.LSTM(512, 512, batch_first=True).to("cuda", torch.bfloat16)
    source = [torch.randn(64, 512, 512).to(torch.bfloat16).pin_memory() for _ in range(batches)]
    side = torch.cuda.Stream()

    def fetch(n):
        with torch.cuda.stream(side):
            return source[n].to("cuda", non_blocking=True), side.record_event()

    def run():
        ready = fetch(0)
        for n in range(batches):
            x, event = ready
            if n + 1 < batches:
                ready = fetch(n + 1)
            torch.cuda.current_stream().wait_event(event)
            x.record_stream(torch.cuda.current_stream())
            made(x)

    with torch.no_grad():
        run(), torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run(), torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profile.export_chrome_trace(file.name)
        events = [e for e in json.load(open(file.name))["traceEvents"] if "dur" in e]
    copies, kernels = intervals(events, {"gpu_memcpy"}), intervals(events, {"kernel"})
    streams = {e["args"].get("stream") for e in events if e.get("cat") == "kernel"}
    copied, worked = (sum(b - a for a, b in part) / 1000 for part in (copies, kernels))
    hidden = common(copies, kernels) / 1000
    return (f"{batches} batches: copies {copied:.2f} ms, kernels {worked:.2f} ms, at the same time {hidden:.2f} ms "
            f"({100 * hidden / copied:.0f} % of the copies).\nKernels ran in streams: {len(streams)}. "
            "The first copy has nothing to hide behind.")


PARTS = {"counters": counters, "overlap": overlap}

if __name__ == "__main__":
    child(sys.argv[1])
