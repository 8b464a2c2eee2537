"""Streams of penstock.serve without Ray: replicas in one process that share a store."""

import asyncio
import itertools

import numpy as np
import pytest
from trained_models import folder, forecaster, language  # noqa: F401: fixtures

import penstock
from penstock.serve._states import Record, StateStore
from penstock.serve._streams import Refused, Streams

ROW = [0.5, -0.5]


def rows(*shape):
    return np.random.default_rng(3).standard_normal((*shape, 2)).astype(np.float32)


def replicas(model, count=1, store=None, **options):
    store = store or StateStore(1000, 60)
    return [Streams(model, store, **options) for _ in range(count)]


def refusal(awaitable):
    """Awaits what has to be refused, and returns (status, text)."""

    async def wait():
        with pytest.raises(Refused) as caught:
            await awaitable
        return caught.value.status, str(caught.value)

    return wait()


async def push(name, number, row, replica):
    """Sends a step until a replica answers, as a client has to."""
    while True:
        try:
            return await replica().step(name, number, row, number - 1)
        except Refused as refused:
            assert refused.status == 503, refused
            await asyncio.sleep(0)


@pytest.mark.parametrize("capacity", [40, 7])
def test_streams_that_change_replicas_get_the_bits_of_sessions(forecaster, capacity):
    """Also if a pool has room for fewer streams than there are."""
    given = rows(20, 12)
    batches = []

    async def run():
        both = replicas(forecaster, 2, capacity=capacity, watch=lambda *batch: batches.append(batch))
        random = np.random.default_rng(1)

        async def stream(i):
            return [await push(f"s{i}", n, row.tolist(), lambda: both[random.integers(2)]) for n, row in enumerate(given[i])]

        return await asyncio.gather(*map(stream, range(len(given))))

    for answers, steps in zip(asyncio.run(run()), given):
        alone = penstock.Session(forecaster)
        np.testing.assert_array_equal(answers, [alone.push(step) for step in steps])
    assert sum(steps for steps, _, _ in batches) >= 240 > len(batches)  # several streams in a batch


def test_a_step_is_answered_once(forecaster):
    """A step that comes again gets its answer again, here and on a replica that takes over; a former owner gets none."""

    async def run():
        first, second = replicas(forecaster, 2)
        given = rows(6)
        answers = [await first.step("a", n, row, -1) for n, row in enumerate(given[:3])]
        np.testing.assert_array_equal(await first.step("a", 1, given[1]), answers[1])
        for n in range(3):  # the client lost them with the replica
            np.testing.assert_array_equal(await second.step("a", n, given[n]), answers[n])
        answers.append(await second.step("a", 3, given[3], 2))
        assert await refusal(first.step("a", 3, given[3], 2)) == (503, "stream 'a': it moved to another replica, or was closed; send step 3 again")
        np.testing.assert_array_equal(await first.step("a", 3, given[3], 2), answers[3])
        assert await refusal(first.step("a", 2, given[2], 1)) == (409, "step 2 of stream 'a' is out of order: step 4 is next")
        answers.append(await first.step("a", 4, given[4], 3))
        alone = penstock.Session(forecaster)
        np.testing.assert_array_equal(answers, [alone.push(row) for row in given[:5]])

    asyncio.run(run())


def test_a_stream_that_fails_disturbs_no_other(forecaster):
    async def run():
        (streams,) = replicas(forecaster)
        alone = penstock.Session(forecaster)
        for n, wrong in enumerate(([np.nan, 0], [np.inf, 0], [1e30, 0], [1e300, 0])):
            good, bad = await asyncio.gather(streams.step("good", n, ROW, n - 1), refusal(streams.step("bad", 0, wrong)))
            np.testing.assert_array_equal(good, alone.push(np.float32(ROW)))
            assert bad[0] == 422 and "step 0 of stream 'bad': features must be" in bad[1]
        for wrong in ([1.0], [[[1.0, 2.0]]], [], [[0, 0]] * 257, [[1.0], [2.0, 3.0]], ["1", "2"], [True, False], [10**400, 0], None, {}, 3):
            assert await refusal(streams.step("bad", 0, wrong)) == (422, "a step must be a list of 2 numbers, the normalised features, or a list of 1 to 256 of them")
        np.testing.assert_array_equal(await streams.step("bad", 0, ROW), penstock.Session(forecaster).push(np.float32(ROW)))

    asyncio.run(run())


def test_chunks_are_taken_as_a_whole(forecaster):
    """Beside single steps of other streams. A chunk with a wrong row changes nothing."""

    async def run():
        streams, other = replicas(forecaster, 2)
        given, short = rows(40), rows(3)
        wrong = np.concatenate([given[10:20], [[np.nan, 0]]])
        alone = penstock.Session(forecaster)
        many, few, one = await asyncio.gather(streams.step("a", 0, given[:10]), streams.step("b", 0, short), streams.step("c", 0, ROW))
        np.testing.assert_array_equal(many, alone.run(given[:10]))
        np.testing.assert_array_equal(few, penstock.Session(forecaster).run(short))
        np.testing.assert_array_equal(one, penstock.Session(forecaster).push(np.float32(ROW)))
        status, text = await refusal(streams.step("a", 1, wrong, 0))
        assert status == 422 and text.startswith("step 1 of stream 'a': row 10: features must be")
        rest = alone.run(given[10:])
        np.testing.assert_array_equal(await streams.step("a", 1, given[10:], 0), rest)
        np.testing.assert_array_equal(await other.step("a", 1, given[10:], 0), rest)  # the saved answer

    asyncio.run(run())


def test_wrong_requests_are_refused_in_words(forecaster):
    async def run():
        (streams,) = replicas(forecaster, capacity=2, window=2, store=StateStore(3, 60))
        step = lambda name, number, received: refusal(streams.step(name, number, ROW, received))  # noqa: E731
        assert await step("a", 1, 0) == (410, "stream 'a' is not known: it was closed or forgotten, or another model served it; begin again with step 0")
        assert await step("", 0, -1) == (422, "the name of a stream must have 1 to 128 printable characters")
        assert await step("a\n", 0, -1) == await step("a" * 129, 0, -1) == await step("", 0, -1)
        assert await step("a", 3, 3) == (422, "received must be in -1 to 2, the number of an earlier step, not 3")
        for n in range(2):
            await streams.step("a", n, ROW)  # a client that reads no answers
        said = (429, "2 answers are not acknowledged: read them, and set 'received' to the last one")
        assert await step("a", 2, -1) == said
        await streams.step("a", 2, ROW, 1)
        both = asyncio.gather(streams.step("a", 3, ROW, 2), step("a", 3, 2), refusal(streams.close("a")))
        _, again, closed = await both
        assert again == (409, "stream 'a' has a step under way: wait for its answer")
        assert closed == (409, "stream 'a' has a step under way: wait for its answer, then close")
        await streams.close("a")
        assert await refusal(streams.close("a")) == (404, "stream 'a' is not open: it was closed before, or never began")
        for name in "bcd":
            await streams.step(name, 0, ROW)
        assert await step("e", 0, -1) == (503, "stream 'e' cannot begin: all places of the store are taken; try again later")
        busy = await asyncio.gather(*(streams.step(name, 1, ROW, 0) for name in "bcd"), return_exceptions=True)
        refused = [each for each in busy if isinstance(each, Refused)]
        assert [(each.status, str(each)) for each in refused] == [(503, "all 2 sessions of this replica are busy: try again later")]
        assert streams.live == 2

    asyncio.run(run())


def test_a_step_completes_if_its_client_leaves(forecaster):
    async def run():
        (streams,) = replicas(forecaster)
        leaving = asyncio.ensure_future(streams.step("a", 0, ROW))
        await asyncio.sleep(0)
        leaving.cancel()
        while streams._tasks:
            await asyncio.sleep(0.001)
        alone = penstock.Session(forecaster)
        for n in range(2):
            np.testing.assert_array_equal(await streams.step("a", n, ROW, n - 1), alone.push(np.float32(ROW)))

    asyncio.run(run())


class Failing(StateStore):
    """A store that is lost at its second save, before or after it kept the states."""

    def __init__(self, after):
        super().__init__(10, 60)
        self.after, self.saves = after, 0

    async def save(self, records):
        self.saves += 1
        if self.saves != 2:
            return await super().save(records)
        if self.after:
            await super().save(records)
        raise ConnectionError("gone")


@pytest.mark.parametrize("after", [False, True])
def test_a_state_that_was_not_saved_answers_nothing(forecaster, after):
    async def run():
        (streams,) = replicas(forecaster, store=Failing(after))
        alone = penstock.Session(forecaster)
        np.testing.assert_array_equal(await streams.step("a", 0, ROW), alone.push(np.float32(ROW)))
        assert await refusal(streams.step("a", 1, ROW, 0)) == (503, "stream 'a': its state was not saved (gone); send step 1 again")
        for n in (1, 2):
            np.testing.assert_array_equal(await streams.step("a", n, ROW, n - 1), alone.push(np.float32(ROW)))

    asyncio.run(run())


def test_a_store_that_starts_again_is_filled_by_replicas(forecaster):
    async def run():
        streams, other = replicas(forecaster, 2)
        await streams.step("a", 0, ROW)
        streams._states = other._states = StateStore(10, 60)
        await streams.step("a", 1, ROW, 0)
        alone = penstock.Session(forecaster)
        expected = [alone.push(np.float32(ROW)) for _ in range(3)]
        np.testing.assert_array_equal(await other.step("a", 2, ROW, 1), expected[2])
        assert (await refusal(streams.step("a", 2, ROW, 1)))[0] == 503  # its claim is of before, but there is a newer one
        await other.close("a")
        assert (await refusal(streams.step("a", 3, ROW, 2)))[0] == 410

    asyncio.run(run())


def test_a_pool_that_fails_fails_its_batch_only(forecaster, monkeypatch):
    async def run():
        (streams,) = replicas(forecaster)
        await streams.step("a", 0, ROW)
        with monkeypatch.context() as patched:
            patched.setattr(streams, "_take", lambda jobs: 1 / 0)
            assert await refusal(streams.step("a", 1, ROW, 0)) == (503, "the batch failed (division by zero): send step 1 again")
        alone = penstock.Session(forecaster)
        alone.push(np.float32(ROW))
        np.testing.assert_array_equal(await streams.step("a", 1, ROW, 0), alone.push(np.float32(ROW)))
        streams.check()
        with monkeypatch.context() as patched:
            patched.setattr("penstock.serve._streams.STUCK_S", -1.0)
            step = asyncio.ensure_future(streams.step("a", 2, ROW, 1))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="a step has waited for more than"):
                while not step.done():  # as soon as it waits for its batch
                    streams.check()
                    await asyncio.sleep(0)
            await step
        streams._running.cancel()
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="the loop of batches ended"):
            streams.check()

    asyncio.run(run())


def test_states_of_another_model_are_refused(forecaster, language):
    async def run():
        store = StateStore(10, 60)
        (texts,), (series,), (own,) = (replicas(m, store=store, prefix=p) for m, p in ((language, "x/"), (forecaster, "x/"), (forecaster, "y/")))
        np.testing.assert_array_equal(await texts.step("a", 0, 65), penstock.Session(language).push(65))
        for wrong in (True, 1.0, [[65]], "A"):
            assert (await refusal(texts.step("a", 1, wrong, 0))) == (422, "a step must be a token, a whole number below 256, or a list of 1 to 256 of them")
        assert (await refusal(texts.step("a", 1, [65, 256], 0))) == (422, "tokens must be below 256, not 65 to 256")
        status, text = await refusal(series.step("a", 1, ROW, 0))
        assert status == 409 and "stream 'a' cannot continue: state must hold" in text
        status, text = await refusal(own.step("a", 1, ROW, 0))  # another file of a model that could read the state
        assert status == 410 and "another model served it" in text
        np.testing.assert_array_equal(await own.step("b", 0, ROW), penstock.Session(forecaster).push(ROW))
        assert len(await push("a", 1, 66, lambda: texts)) == 256

    asyncio.run(run())


def test_a_store_forgets_what_is_idle():
    async def run():
        clock = itertools.count().__next__
        store = StateStore(2, 5, clock)
        first = await store.claim("a", True)
        assert first == Record(first.claim, 0, b"", {}) and await store.claim("b", False) is None
        while await store.claim("b", True) is None:
            pass  # each call takes a second
        assert (await store.claim("a", True)).claim > first.claim
        assert await store.claim("c", True) is None
        assert await store.save({"a": first, "b": first}) == ["a", "b"]

    asyncio.run(run())
