#!/usr/bin/env python3
"""A client of penstock.serve whose stream survives the loss of a replica, and a load test with many of them.

    python -m penstock.serve MODEL --capacity 2000
    python examples/serving/client.py --streams 200 --seconds 10

The load test opens its streams, lets each send its next step when the last one is answered, and prints steps per
second, latencies, and the CPU time a step and memory a stream of Ray's processes on this machine. It needs the package
websockets.
"""

import argparse
import asyncio
import json
import os
import re
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import websockets


class StreamError(Exception):
    """The server refused a step. The message is its reason."""


class Stream:
    """A stream: push() sends a step and returns its outputs, and repeats it until a replica answers.

    A step that is sent again is not computed again if it was answered before.
    """

    def __init__(self, url: str, name: str, patience_s: float = 60.0) -> None:
        self.url, self.name, self.patience_s = url, name, patience_s
        self.number = 0  # of the next step
        self.reconnections = 0
        self._socket: Any = None

    async def push(self, step: Any) -> Any:
        answer = await self.ask({"number": self.number, "step": step, "received": self.number - 1})
        self.number += 1
        return np.array(answer["outputs"], np.float32)

    async def close(self) -> None:
        await self.ask({"close": True})
        await self.disconnect()

    async def disconnect(self) -> None:
        """Leaves the stream on the server, to be continued."""
        if self._socket:
            await self._socket.close()
            self._socket = None

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sends a message until it is answered. Raises StreamError for an error that sending again does not mend."""
        deadline, pause = time.monotonic() + self.patience_s, 0.05
        while True:
            try:
                if self._socket is None:
                    self._socket = await websockets.connect(
                        f"{self.url}/stream", additional_headers={"x-session-id": self.name}, proxy=None
                    )
                await self._socket.send(json.dumps(message))
                answer: dict[str, Any] = json.loads(await self._socket.recv())
                if answer.get("status") != 503:
                    break
            except (OSError, websockets.WebSocketException) as error:
                answer = {"error": f"no connection: {error}"}
                self._socket = None
                self.reconnections += 1
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
        if "error" in answer:
            raise StreamError(answer["error"])
        return answer


def usage() -> dict[str, tuple[float, float]]:
    """Returns {kind: (resident bytes, seconds of CPU)} of the processes of Ray Serve on this machine."""
    kinds = {"replica": r"ray::ServeReplica:\S*:streams", "store": r"ray::ServeReplica:\S*:states", "proxy": "ray::Proxy"}
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    total = dict.fromkeys(kinds, (0.0, 0.0))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            pages = int((process / "statm").read_text().split()[1])
            user, system = map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:13])
        except OSError:
            continue  # it ended meanwhile
        for kind, pattern in kinds.items():
            if re.match(pattern, command):
                resident, seconds = total[kind]
                total[kind] = resident + pages * page, seconds + (user + system) / tick
    return total


async def load(url: str, streams: int, seconds: float, chunk: int = 1) -> dict[str, float]:
    """Runs streams side by side and returns what was measured."""
    with urlopen(url.replace("ws", "http", 1) + "/model") as answer:
        data = json.load(answer)
    random = np.random.default_rng(0)

    def step() -> Any:
        if data["vocabulary"]:
            return random.integers(data["vocabulary"], size=chunk).tolist()
        return random.normal(size=(chunk, data["input_size"])).tolist()

    opened = [Stream(url, f"load-{time.time_ns()}-{i}") for i in range(streams)]
    await opened[0].push(step())  # the first one allocates what all share
    before = usage()
    await asyncio.gather(*(stream.push(step()) for stream in opened[1:]))
    after = usage()
    latencies: list[float] = []
    end = time.monotonic() + seconds

    async def run(stream: Stream) -> None:
        while (start := time.monotonic()) < end:
            await stream.push(step())
            latencies.append(time.monotonic() - start)

    await asyncio.gather(*map(run, opened))
    await asyncio.gather(*(stream.close() for stream in opened))
    p50, p99 = np.percentile(latencies, [50, 99]) * 1e3
    measured = {"streams": float(streams), "steps/s": chunk * len(latencies) / seconds, "p50 ms": p50, "p99 ms": p99}
    for kind, (resident, cpu) in usage().items():
        measured[f"{kind} us/step"] = (cpu - after[kind][1]) / (chunk * len(latencies)) * 1e6
        measured[f"{kind} kB/stream"] = (after[kind][0] - before[kind][0]) / max(streams - 1, 1) / 1e3
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="ws://127.0.0.1:8000")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--chunk", type=int, default=1, help="rows of a message")
    options = parser.parse_args()
    measured = asyncio.run(load(options.url, options.streams, options.seconds, options.chunk))
    print("  ".join(f"{name} {value:.1f}" for name, value in measured.items()))


if __name__ == "__main__":
    main()
