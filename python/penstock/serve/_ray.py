"""The application of Ray Serve: replicas with streams, and stores with their states."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from ray import serve
from ray.exceptions import RayActorError
from ray.serve import metrics
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.handle import DeploymentHandle

import penstock

from . import Options
from ._states import Record, StateStore
from ._streams import LONGEST_CHUNK, Refused, Streams

HEADER = "x-session-id"  # by which Ray Serve chooses a replica
RETRIES_S = (0.1, 0.3, 1.0, 3.0, 10.0, 10.0)  # while Ray Serve starts a store again
LONGEST_MESSAGE = 256  # characters, and 32 more for each number of the longest chunk

web = FastAPI(title="Penstock", docs_url=None, redoc_url=None)


class RemoteStates:
    """The states in the stores, which share the streams by a hash of their names."""

    def __init__(self, stores: list[DeploymentHandle]) -> None:
        self._stores = stores

    def _of(self, stream: str) -> int:
        return zlib.crc32(stream.encode()) % len(self._stores)

    async def _call(self, store: int, method: str, *arguments: Any) -> Any:
        """Calls a store. All calls can be repeated: it may have died before or after it did its work."""
        for seconds in RETRIES_S:
            try:
                return await getattr(self._stores[store], method).remote(*arguments)
            except RayActorError:
                await asyncio.sleep(seconds)
        return await getattr(self._stores[store], method).remote(*arguments)

    async def claim(self, stream: str, create: bool) -> Record | None:
        record: Record | None = await self._call(self._of(stream), "claim", stream, create)
        return record

    async def save(self, records: Mapping[str, Record]) -> list[str]:
        parts: dict[int, dict[str, Record]] = {}
        for stream, record in records.items():
            parts.setdefault(self._of(stream), {})[stream] = record
        refused = await asyncio.gather(*(self._call(store, "save", part) for store, part in parts.items()))
        return [stream for part in refused for stream in part]

    async def close(self, stream: str) -> bool:
        return bool(await self._call(self._of(stream), "close", stream))


class _Meter:
    """Metrics of a replica, which Ray exports to Prometheus."""

    def __init__(self) -> None:
        self.steps = metrics.Counter("penstock_steps", "Steps taken.")
        self.failures = metrics.Counter("penstock_failures", "Requests that got an error.", tag_keys=("status",))
        self.streams = metrics.Gauge("penstock_streams", "Streams with a session in the pool.")
        self.batch = metrics.Histogram("penstock_batch", "Steps of a batch.", boundaries=[4**i for i in range(7)])
        text, boundaries = "From the arrival of a step to its answer.", [0.001 * 2**i for i in range(12)]
        self.seconds = metrics.Histogram("penstock_batch_seconds", text, boundaries=boundaries)


async def _read(socket: WebSocket, messages: asyncio.Queue[Any], longest: int) -> None:
    """Puts messages into a queue as they come; None ends it, and Refused if there are too many, or one is impossible.

    Ray Serve buffers messages without a limit, so nothing may be left there.
    """
    end = None
    while end is None:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            break
        text = message.get("text")
        if text is None:
            end = Refused(422, "messages must be text, not binary")
        elif len(text) > longest:
            end = Refused(422, f"a message may have {longest} characters, not {len(text)}")
        elif messages.full():
            end = Refused(429, f"more than {messages.maxsize} steps wait: wait for answers")
        else:
            messages.put_nowait(text)
    await messages.put(end)


class StreamServer:
    """A replica."""

    def __init__(self, options: Options, stores: list[DeploymentHandle]) -> None:
        self._options, self._meter = options, _Meter()
        self._model = penstock.Model.load(options.model)
        digest = hashlib.sha256(Path(options.model).read_bytes()).hexdigest()
        self._longest = LONGEST_MESSAGE + 32 * max(self._model.data["input_size"], 1) * LONGEST_CHUNK
        self._streams = Streams(
            self._model, RemoteStates(stores), prefix=f"{digest[:16]}/", capacity=options.capacity,
            window=options.window, threads=options.threads, watch=self._watch,
        )  # fmt: skip

    def check_health(self) -> None:
        """Ray Serve replaces a replica that raises here."""
        self._streams.check()

    @property
    def data(self) -> dict[str, Any]:
        """What the model reads and answers."""
        return self._model.data

    async def connect(self, socket: WebSocket) -> None:
        """Answers the messages of a connection, one after the other."""
        await socket.accept()
        messages: asyncio.Queue[Any] = asyncio.Queue(self._options.window)
        reader = asyncio.ensure_future(_read(socket, messages, self._longest))
        try:
            while (message := await asyncio.wait_for(messages.get(), self._options.idle_s)) is not None:
                if isinstance(message, Refused):
                    await socket.send_text(json.dumps(self._error(message)))
                    await socket.close(1008, str(message))
                    break
                await socket.send_text(json.dumps(await self.answer(socket.headers.get(HEADER, ""), message)))
        except asyncio.TimeoutError:
            await socket.close(1001, f"no message came for {self._options.idle_s:g} s: connect again to continue")
        except (WebSocketDisconnect, RuntimeError):
            pass  # the client went away; its stream is kept
        finally:
            reader.cancel()

    async def answer(self, stream: str, text: str) -> dict[str, Any]:
        """Answers a message of a stream: a step, or its end."""
        number = None
        try:
            if not stream:
                raise Refused(400, f"the header {HEADER} must name the stream")
            try:
                message = json.loads(text) if len(text) <= self._longest else None
            except (ValueError, RecursionError):
                message = None
            if message == {"close": True}:
                await self._streams.close(stream)
                return {"closed": True}
            known = {"number", "step", "received"}
            if not isinstance(message, dict) or not {"number", "step"} <= set(message) <= known:
                raise Refused(422, 'a message must be {"number": N, "step": VALUES, "received": N} or {"close": true}')
            number, received = message["number"], message.get("received", -1)
            if type(number) is not int or type(received) is not int:
                raise Refused(422, "number and received must be whole numbers")
            outputs = await self._streams.step(stream, number, message["step"], received)
            return {"number": number, "outputs": outputs.tolist()}
        except Refused as refused:
            return self._error(refused) | ({} if number is None else {"number": number})

    def _error(self, refused: Refused) -> dict[str, Any]:
        self._meter.failures.inc(tags={"status": str(refused.status)})
        return {"error": str(refused), "status": refused.status}

    def _watch(self, steps: int, failures: int, seconds: float) -> None:
        if steps > failures:
            self._meter.steps.inc(steps - failures)
        self._meter.batch.observe(steps)
        self._meter.seconds.observe(seconds)
        self._meter.streams.set(self._streams.live)


def _server() -> Any:
    return serve.get_replica_context().servable_object


@web.get("/model")
async def _get_model() -> dict[str, Any]:
    """Says what the model reads and answers: columns with mean and scale, classes, vocabulary."""
    data: dict[str, Any] = _server().data
    return data


@web.post("/step")
async def _post_step(request: Request) -> JSONResponse:
    """Takes a step of the stream that the header names, or ends the stream."""
    body = await request.body()
    answer = await _server().answer(request.headers.get(HEADER, ""), body.decode(errors="replace"))
    return JSONResponse(answer, answer.get("status", 200))


@web.websocket("/stream")
async def _connect(socket: WebSocket) -> None:
    await _server().connect(socket)


def application(options: Options) -> serve.Application:
    """Returns the application."""
    store = serve.deployment(StateStore).options(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0.1})
    capacity = -(-options.streams // options.stores)
    stores = [store.options(name=f"states-{i}").bind(capacity, options.keep_s) for i in range(options.stores)]
    scaling = AutoscalingConfig(
        min_replicas=options.min_replicas, max_replicas=options.max_replicas,
        target_ongoing_requests=options.target or 0.7 * options.capacity,
    )  # fmt: skip
    # Strict: a stream's requests go to one replica. On another one it would be correct, but slower.
    router = RequestRouterConfig(
        request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter",
        request_router_kwargs={"num_fallback_replicas": 0},
    )
    return serve.deployment(serve.ingress(web)(StreamServer)).options(
        name="streams", max_ongoing_requests=options.capacity, max_queued_requests=options.capacity,
        autoscaling_config=scaling, request_router_config=router, ray_actor_options={"num_cpus": options.threads},
        health_check_period_s=2, graceful_shutdown_timeout_s=5,
    ).bind(options, stores)  # fmt: skip
