"""penstock.serve under Ray Serve: replicas that die, clients that do wrong, metrics and load."""

import asyncio
import json
import pathlib
import socket
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest
from trained_models import folder, forecaster  # noqa: F401: fixtures

import penstock
import penstock.serve

ray = pytest.importorskip("ray", reason="ray is not installed: 390 MB; tools/test_serving.sh runs this")
websockets = pytest.importorskip("websockets", reason="websockets is not installed: tools/test_serving.sh runs this")
from ray import serve  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).parents[2] / "examples" / "serving"))
import client  # noqa: E402

STREAMS, STEPS, WINDOW = 50, 60, 4


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def metrics_url():
    return f"http://127.0.0.1:{free_port()}/metrics"


@pytest.fixture(scope="module")
def address(forecaster, folder, metrics_url):
    """host:port of two replicas with room for all streams."""
    port = free_port()
    metrics_port = int(metrics_url.split(":")[2].split("/")[0])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _metrics_export_port=metrics_port)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    options = {"model": str(folder / "series.safetensors"), "min_replicas": 2, "max_replicas": 2, "window": WINDOW, "stores": 2}
    serve.run(penstock.serve.build(options))
    yield f"127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


def post(address, stream, body):
    """Returns (status, answer)."""
    headers = {"x-session-id": stream} if stream else {}
    request = urllib.request.Request(f"http://{address}/step", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def kill_a_replica():
    named = [each for each in ray.util.list_named_actors(all_namespaces=True) if "#streams#" in each["name"]]
    assert len(named) == 2
    ray.kill(ray.get_actor(named[0]["name"], namespace=named[0]["namespace"]), no_restart=True)


@pytest.mark.timeout(300)
def test_a_killed_replica_loses_and_repeats_nothing(address, forecaster):
    """50 streams lose one of two replicas: each step is answered once, in order, with the bits of a session."""
    rows = np.random.default_rng(2).standard_normal((STREAMS, STEPS, 2)).astype(np.float32)
    started = asyncio.Event()

    async def run():
        streams = [client.Stream(f"ws://{address}", f"k{i}", patience_s=120) for i in range(STREAMS)]

        async def one(stream, steps):
            answers = []
            for step in steps:
                answers.append(await stream.push(step.tolist()))
                if len(answers) == STEPS // 3:
                    started.set()
            await stream.close()
            return answers

        async def kill():
            await started.wait()
            await asyncio.to_thread(kill_a_replica)

        answers, _ = await asyncio.gather(asyncio.gather(*map(one, streams, rows)), kill())
        return answers, sum(stream.reconnections for stream in streams)

    answers, reconnections = asyncio.run(run())
    assert reconnections > 0
    for got, steps in zip(answers, rows):
        alone = penstock.Session(forecaster)
        np.testing.assert_array_equal(got, [alone.push(step) for step in steps])


def test_clients_that_do_wrong_get_errors_and_others_go_on(address, forecaster):
    async def run():
        def connect(name):
            return websockets.connect(f"ws://{address}/stream", additional_headers={"x-session-id": name}, proxy=None)

        async def ask(connection, message):
            await connection.send(message if isinstance(message, (str, bytes)) else json.dumps(message))
            return json.loads(await connection.recv())

        good = client.Stream(f"ws://{address}", "good")
        alone = penstock.Session(forecaster)

        async def goes_on():
            np.testing.assert_array_equal(await good.push([0.5, -0.5]), alone.push(np.float32([0.5, -0.5])))

        async with connect("bad") as bad:
            for message, status, said in [
                ({"number": 0, "step": [float("nan"), 0]}, 422, "features must be"),
                ({"number": 0, "step": [1, 2, 3]}, 422, "list of 2 numbers"),
                ({"number": 3, "step": [1, 2]}, 409, "step 0 is next"),
                ({"number": "0", "step": [1, 2]}, 422, "whole numbers"),
                ({"step": [1, 2]}, 422, "a message must be"),
                ("[" * 300, 422, "a message must be"),
                ("nonsense", 422, "a message must be"),
            ]:
                answer = await ask(bad, message)
                assert answer["status"] == status and said in answer["error"], (message, answer)
                await goes_on()
            assert "outputs" in await ask(bad, {"number": 0, "step": [1, 2]})
            assert await ask(bad, {"close": True}) == {"closed": True}
            assert (await ask(bad, {"close": True}))["status"] == 404  # closes twice
            await goes_on()
        for message, said in ((b"\0", "text, not binary"), ("x" * 20_000, "16640 characters")):
            async with connect("bad") as bad:
                assert said in (await ask(bad, message))["error"]
                with pytest.raises(websockets.ConnectionClosedError, match="1008"):
                    await bad.recv()
        async with connect("silent") as silent:  # sends and never reads
            for number in range(100):
                await silent.send(json.dumps({"number": number, "step": [1, 2]}))
            await goes_on()
            answers = [json.loads(text) async for text in _until_closed(silent)]
            outputs = [each for each in answers if "outputs" in each]
            assert [each["number"] for each in outputs] == list(range(len(outputs))) and len(outputs) <= WINDOW
            assert len(answers) < 100 and answers[-1]["status"] == 429, answers[-1]
        await goes_on()
        await good.close()

    async def _until_closed(connection):
        try:
            while True:
                yield await connection.recv()
        except websockets.ConnectionClosedError as closed:
            assert closed.rcvd.code == 1008

    asyncio.run(run())


def test_a_stream_goes_on_over_http(address, forecaster):
    alone = penstock.Session(forecaster)
    expected = [alone.push(np.float32([0.5, n])) for n in range(3)]

    async def begin():
        stream = client.Stream(f"ws://{address}", "both")
        np.testing.assert_array_equal(await stream.push([0.5, 0]), expected[0])
        await stream.disconnect()

    asyncio.run(begin())
    for n in (1, 2, 2):
        status, answer = post(address, "both", {"number": n, "step": [0.5, n], "received": n - 1})
        assert status == 200 and answer["number"] == n
        np.testing.assert_array_equal(np.float32(answer["outputs"]), expected[n])
    assert post(address, "both", {"close": True}) == (200, {"closed": True})
    assert post(address, "both", {"close": True})[0] == 404
    assert post(address, "", {"close": True}) == (400, {"error": "the header x-session-id must name the stream", "status": 400})
    with urllib.request.urlopen(f"http://{address}/model") as answer:
        assert json.load(answer) == forecaster.data


def test_load(address):
    """A bounded load, all of it answered."""
    measured = asyncio.run(client.load(f"ws://{address}", streams=40, seconds=3))
    assert measured["steps/s"] > 0 and 0 < measured["p50 ms"] <= measured["p99 ms"]
    assert all(measured[f"{kind} us/step"] > 0 for kind in ("replica", "store", "proxy"))


def test_metrics_are_those_of_prometheus(address, metrics_url):
    assert post(address, "m", {"number": 0, "step": [1, 2]})[0] == 200
    assert post(address, "m", {"number": 7, "step": [1, 2], "received": 6})[0] == 409
    wanted = {"penstock_steps", "penstock_failures", "penstock_streams", "penstock_batch", "penstock_batch_seconds"}

    async def wait():
        while True:
            with urllib.request.urlopen(metrics_url) as answer:
                text = answer.read().decode()
            if all(f"ray_{name}" in text for name in wanted):
                return text
            await asyncio.sleep(1)

    text = asyncio.run(asyncio.wait_for(wait(), 60))
    assert 'status="409"' in text
