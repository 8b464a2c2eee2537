"""Pools of sessions, beside sessions by themselves."""

import numpy as np
import pytest
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
