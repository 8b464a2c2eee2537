"""Pools of sessions, beside sessions by themselves."""

import threading

import numpy as np
import pytest
from published import published
from trained_models import folder, forecaster  # noqa: F401: fixtures

import penstock


def test_sessions_of_a_pool_answer_as_sessions(forecaster):
    pool = penstock.SessionPool(forecaster, 100, threads=2)
    assert repr(pool) == f"<penstock.SessionPool of 0 of 100 sessions of {forecaster!r}>"
    numbers = [pool.open() for _ in range(90)]
    alone = [penstock.Session(forecaster) for _ in numbers]
    random = np.random.default_rng(1)
    out = np.empty((40, pool.push(numbers[:1], np.zeros((1, 2), np.float32))[0].shape[1]), np.float32)
    pool.reset(numbers[0])
    for _ in range(8):
        chosen = random.permutation(90)[:40]
        rows = random.standard_normal((40, 2)).astype(np.float32)
        answers, failures = pool.push(np.array(numbers)[chosen], rows, out=out)
        assert answers is out and failures == {}
        np.testing.assert_array_equal(out, [alone[i].push(row) for i, row in zip(chosen, rows)])
    other = penstock.SessionPool(forecaster, 1)
    moved = other.open()
    other.restore(moved, pool.state(numbers[3]))
    pool.close(numbers[3])
    assert (pool.capacity, pool.open_sessions, other.open_sessions) == (100, 89, 1)
    row = np.ones(2, np.float32)
    np.testing.assert_array_equal(other.push([moved], [row])[0][0], alone[3].push(row))


def test_a_session_of_a_pool_fails_by_itself(forecaster):
    pool, other = penstock.SessionPool(forecaster, 4), penstock.SessionPool(forecaster, 1)
    good, bad, closed, stranger = pool.open(), pool.open(), pool.open(), other.open()
    pool.close(closed)
    rows = np.full((5, 2), 0.5, np.float32)
    rows[1, 1] = np.nan
    answers, failures = pool.push([good, bad, closed, stranger, good], rows)
    np.testing.assert_array_equal(answers[0], penstock.Session(forecaster).push(rows[0]))
    assert np.isnan(answers[1:]).all() and sorted(failures) == [1, 2, 3, 4]
    for position, said in ((1, "features must be numbers"), (2, "closed"), (3, "not of this pool"), (4, "twice")):
        assert isinstance(failures[position], penstock.InvalidArgument) and said in str(failures[position])
    assert failures[1].argument == "features"
    for call, error, said in [
        (lambda: pool.push([good], rows), penstock.InvalidArgument, r"features must have the shape \(N, I\)"),
        (lambda: pool.push([[good]], rows), penstock.InvalidArgument, r"sessions must have the shape \(N,\)"),
        (lambda: pool.close(closed), penstock.InvalidArgument, "closed"),
        (lambda: pool.restore(good, np.zeros(3, np.float32)), penstock.InvalidArgument, "state must hold"),
        (lambda: penstock.SessionPool(forecaster, 0), penstock.InvalidArgument, "capacity must be in 1"),
        (lambda: [pool.open() for _ in range(3)], penstock.OutOfMemory, "all 4 sessions of the pool are open"),
    ]:
        with pytest.raises(error, match=said):
            call()


def test_a_full_queue_is_an_answer(forecaster):
    pool = penstock.SessionPool(forecaster, 10, threads=1, queue=6, batch=4)
    numbers = np.array([pool.open() for _ in range(4)])
    alone = [penstock.Session(forecaster) for _ in numbers]
    rows = np.random.default_rng(2).standard_normal((9, 2)).astype(np.float32)
    which = np.array([0, 1, 0, 2, 1, 3, 3, 3, 3])
    assert pool.submit(numbers[which], rows, tags=np.arange(9)) == 6 == pool.waiting
    assert pool.submit(numbers[:1], rows[:1]) == 0
    seen = []
    while pool.waiting:
        answers = pool.run()
        assert answers.failures == {} and len(answers.tags) <= 4
        for session, tag, outputs in zip(answers.sessions, answers.tags, answers.outputs):
            assert session == numbers[which[tag]]
            np.testing.assert_array_equal(outputs, alone[which[tag]].push(rows[tag]))
            seen.append(tag)
    assert seen == [0, 1, 3, 5, 2, 4]
    assert pool.run(0.01).sessions.shape == (0,)


def test_threads_submit_to_a_pool_that_runs(forecaster):
    pool = penstock.SessionPool(forecaster, 40, threads=1, queue=16, wait_s=1e-4)
    numbers = np.array([pool.open() for _ in range(40)])

    def submit(part):
        for step in range(30):
            done = 0
            while done < len(part):
                done += pool.submit(part[done:], np.full((len(part) - done, 2), step / 30, np.float32), tags=[step] * (len(part) - done))

    threads = [threading.Thread(target=submit, args=(part,)) for part in np.split(numbers, 4)]
    for thread in threads:
        thread.start()
    steps = {int(number): [] for number in numbers}
    while sum(map(len, steps.values())) < 40 * 30:
        for session, tag in zip(*pool.run(1)[:2]):
            steps[int(session)].append(tag)
    for thread in threads:
        thread.join()
    assert all(taken == list(range(30)) for taken in steps.values())
    alone = penstock.Session(forecaster)
    for step in range(30):
        alone.push(np.full(2, step / 30, np.float32))
    assert all((pool.state(number) == alone.state).all() for number in numbers)


def test_a_pool_of_silero_vad(tmp_path):
    network = penstock.import_onnx(published("silero_vad", "data", "silero_vad.onnx"), fixed={"sr": 16000})
    shapes = {"input": [1, 576], "state": [2, 1, 128]}
    pool = penstock.SessionPool(network, 200, shapes=shapes, threads=2)
    numbers = np.array([pool.open() for _ in range(150)])
    alone = [penstock.NetworkSession(network, shapes) for _ in range(3)]
    sound = 0.3 * np.random.default_rng(3).standard_normal((4, 150, 576)).astype(np.float32)
    sound[2, 5, 7] = np.inf
    for chunk in sound:
        answers, failures = pool.push(numbers, chunk)
        for i, session in enumerate(alone):
            np.testing.assert_allclose(answers[i], session.run(chunk[i : i + 1])["output"][0], atol=1e-6)
        assert list(failures) == ([5] if np.isinf(chunk).any() else [])
    other = penstock.SessionPool(network, 1, shapes=shapes, threads=1)
    moved = other.open()
    other.restore(moved, pool.state(numbers[0]))
    again = other.push([moved], sound[0, :1])[0]
    np.testing.assert_allclose(again[0], alone[0].run(sound[0, :1])["output"][0], atol=1e-6)


def test_pools_refuse_in_words(forecaster):
    with pytest.raises(penstock.InvalidArgument, match="shapes must be None for a Model"):
        penstock.SessionPool(forecaster, 2, shapes={"input": [1, 2]})
    with pytest.raises(penstock.InvalidArgument, match="this pool has no queue"):
        penstock.SessionPool(forecaster, 2).run()
    with pytest.raises(penstock.InvalidArgument, match=r"tags must have the shape \(N,\)"):
        penstock.SessionPool(forecaster, 2, queue=1).submit([1], [[0.0, 0.0]], tags=[1, 2])
