"""What every object of the package does under threads: it is shared, guarded, or refuses with an error. Never a crash."""

import gzip
import signal
import subprocess
import sys
import threading
import time
import wave

import numpy as np
import pytest

import penstock

F32 = np.float32
TEXT = b"the quick brown fox jumps over the lazy dog. " * 60


def at_once(*works, times=40):
    """Each of `works` over and over in a thread of its own; the messages of what they raise."""
    start, messages = threading.Barrier(len(works)), []

    def repeat(work):
        start.wait(timeout=60)
        for _ in range(times):
            try:
                work()
            except penstock.Error as error:
                messages.append(str(error))

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    return set(messages)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT)
    data = penstock.open_text(tmp_path / "text.txt")
    return penstock.Model(data, cell="mingru", width=16, blocks=2), data


def test_a_tape_is_for_one_call_at_a_time():
    network = penstock.Recurrent("lstm", 3, 5, layers=2)
    tape = network.tape()

    def both_passes(x):
        y, _ = network.forward(x, tape=tape, threads=1)
        network.backward(y, tape=tape)

    shapes = ((2, 7), (5, 200), (1, 3), (3, 90))
    messages = at_once(*[lambda x=np.ones((*shape, 3), F32): both_passes(x) for shape in shapes], times=200)
    # A backward pass after another thread's forward pass finds the wrong shape.
    assert all("tape is in use by another call: give each thread a tape of its own" in text or "dy must have the shape" in text for text in messages)
    both_passes(np.ones((2, 7, 3), F32))


def test_weights_change_between_calls_never_within_one():
    network = penstock.Recurrent("gru", 3, 5)
    x = np.random.default_rng(1).standard_normal((4, 30, 3)).astype(F32)
    sets = [{name: value.copy() for name, value in penstock.Recurrent("gru", 3, 5, seed=seed).state_dict().items()} for seed in (1, 2)]
    answers = []
    for weights in sets:
        network.load_state_dict(weights)
        answers.append(network.forward(x, threads=1)[0])

    def one_of_them():
        y, _ = network.forward(x, threads=1)
        assert any((y == answer).all() for answer in answers)

    failed = []

    def checked():
        try:
            one_of_them()
        except AssertionError:
            failed.append(1)

    assert not at_once(checked, checked, *[lambda weights=weights: network.load_state_dict(weights) for weights in sets], times=100)
    assert not failed


def test_a_session_answers_one_call_after_the_other(text):
    model, _ = text
    session, lone = penstock.Session(model), penstock.Session(model)
    expected = lone.push(65).copy()
    answers = []

    def anew():
        session.reset()
        answers.append(session.push(65))

    assert not at_once(*[anew] * 4, times=100)
    # Others may have pushed after the reset, but no answer is torn, and the session is as good as before.
    assert all(np.isfinite(answer).all() for answer in answers)
    session.reset()
    assert (session.push(65) == expected).all()


def test_a_batch_of_sessions_refuses_a_second_call_at_once(text):
    model, _ = text
    batch = penstock.SessionBatch(model, 64, threads=1)
    expected = penstock.SessionBatch(model, 64, threads=1).push(np.full(64, 65, np.int32))
    messages = at_once(*[lambda: batch.push(np.full(64, 65, np.int32)), lambda: batch.generate(20)] * 2, times=20)
    assert all("the batch of sessions is in use by another call" in message for message in messages)
    batch.reset()
    np.testing.assert_array_equal(batch.push(np.full(64, 65, np.int32)), expected)


def test_a_pool_of_sessions_refuses_a_second_call_at_once(text):
    model, _ = text
    pool = penstock.SessionPool(model, 64, threads=1)
    sessions = [pool.open() for _ in range(64)]
    messages = at_once(*[lambda: pool.push(sessions, np.full(64, 65, np.int32)), lambda: pool.close(pool.open())] * 2, times=20)
    told = ("the pool of sessions is in use by another call", "all 64 sessions of the pool are open")
    assert all(any(text in message for text in told) for message in messages)
    for session in sessions:
        pool.reset(session)
    expected = penstock.Session(model).push(65)
    answers, failures = pool.push(sessions, np.full(64, 65, np.int32))
    assert not failures and (answers == expected).all()


def test_what_reads_an_array_may_use_the_session_itself(series_model):
    session = penstock.Session(series_model)
    size = series_model.data["input_size"]

    class Meddler:
        def __array__(self, dtype=None, copy=None):
            session.push(np.zeros(size, F32))
            return np.zeros(size, F32)

    assert np.isfinite(session.push(Meddler())).all()


@pytest.fixture
def series_model(tmp_path):
    (tmp_path / "series.csv").write_text("y\n" + "".join(f"{i % 7}\n" for i in range(80)))
    return penstock.Model(penstock.open_series(tmp_path / "series.csv"), width=8, blocks=1)


def test_a_session_keeps_the_weights_that_it_was_opened_with(text):
    model, data = text
    session = penstock.Session(model)
    before = session.push(65).copy()
    for _ in range(2):
        penstock.train(model, data, steps=20, batch=2, length=16, threads=1, progress=False)
        session.reset()
        assert (session.push(65) == before).all()
        fresh = penstock.Session(model).push(65).copy()
        assert not (fresh == before).all()
        outputs, _ = model.forward(np.array([65], np.int32), exact=True)
        assert (outputs[0] == fresh).all()


def test_a_model_that_is_trained_is_for_nobody_else(text):
    model, data = text
    session = penstock.Session(model)
    messages = at_once(
        lambda: penstock.train(model, data, steps=3, batch=2, length=16, threads=1, progress=False),
        lambda: model.forward(np.array([1, 2, 3], np.int32)),
        lambda: model.generate(b"a", 3),
        lambda: penstock.Session(model),
        lambda: session.push(3),
        lambda: penstock.evaluate(model, data, threads=1),
    )
    said = ("the model is being trained with", "the dataset is being trained with", "the model is in use", "the dataset is in use")
    assert all(any(part in text for part in said) for text in messages), messages


def test_models_and_datasets_are_read_by_any_number_of_calls(text):
    model, data = text
    tokens = np.arange(20, dtype=np.int32)
    expected, _ = model.forward(tokens, exact=True)
    score = penstock.evaluate(model, data, threads=1)
    wrong = []

    def ask():
        if not (model.forward(tokens, exact=True)[0] == expected).all() or penstock.evaluate(model, data, threads=1) != score:
            wrong.append(1)

    assert not at_once(*[ask] * 4, times=10)
    assert not wrong


def test_a_scan_has_no_state_to_share():
    a = np.full((2, 50, 3), 0.5, F32)
    expected, _ = penstock.scan(a, a, threads=1)
    wrong = []

    def ask():
        if not (penstock.scan(a, a, threads=1)[0] == expected).all():
            wrong.append(1)

    assert not at_once(*[ask] * 4)
    assert not wrong


WORKING = """
import pathlib, signal, sys, threading
import penstock
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored for all of us
labelled = penstock.open_labelled("labelled.csv") if sys.argv[1] in ("add_filters", "train") else None
def train():
    model = penstock.Model(labelled, width=8, blocks=1)
    result = penstock.train(model, labelled, steps=2, patience=0, threads=1, progress=False)
    assert result.interrupted and result.last.step == 2
    assert model.spec["filters"] == 0 and model.history["steps"] == 2
    raise KeyboardInterrupt
work = {
    "train": train,
    "add_filters": lambda: penstock.Model(labelled, width=8, blocks=1).add_filters(labelled, threads=1),
    "open_series": lambda: penstock.open_series("large.csv"),
    "open_text": lambda: penstock.open_text("large.txt.gz"),
    "open_sound": lambda: penstock.open_sound("large.wav", "large.wav"),
    "predict": lambda: penstock.Model.load("series").predict(pathlib.Path("large.csv")),
    "quantiles": lambda: penstock.Model.load("series").predict(pathlib.Path("large.csv"), quantiles=[0.1, 0.9]),
    "evaluate": lambda: penstock.Model.load("series").evaluate(pathlib.Path("large.csv")),
    "prompt": lambda: penstock.Model.load("text").generate(bytes(50_000_000), 1),
}[sys.argv[1]]
print("begins", flush=True)
threading.Timer(0.5, lambda: print("others run", flush=True)).start()
try:
    while True:
        work()  # again, should it have an end before it is interrupted
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((400_000, 4))
    np.savetxt(folder / "large.csv", rows, fmt="%.6f", delimiter=",", header="a,b,c,d", comments="")
    with open(folder / "large.csv") as table:
        (folder / "small.csv").write_text("".join(table.readline() for _ in range(200)))
    (folder / "large.txt.gz").write_bytes(gzip.compress(b"In the beginning was the word.\n" * 3_000_000, 1))
    (folder / "small.txt").write_bytes(b"In the beginning was the word.\n" * 100)
    rows = "".join(f"{i // 100},{'ab'[i // 100 % 2]},{i * 7919 % 1000}\n" for i in range(400_000))
    (folder / "labelled.csv").write_text("sequence,label,x\n" + rows)
    with wave.open(str(folder / "large.wav"), "wb") as sound:
        sound.setparams((1, 2, 48000, 0, "NONE", ""))
        sound.writeframes(rng.integers(-9999, 9999, 48000 * 600, np.int16).tobytes())
    for name, data in (
        ("series", penstock.open_series(folder / "small.csv")),
        ("text", penstock.open_text(folder / "small.txt")),
    ):
        model = penstock.Model(data, width=16, blocks=1)
        penstock.train(model, data, steps=2)
        model.save(folder / name)
    return folder


@pytest.mark.parametrize(
    "work", ["open_series", "open_text", "open_sound", "predict", "quantiles", "evaluate", "prompt", "add_filters", "train"]
)
def test_ctrl_c_ends_work_on_large_inputs(large, work):
    with subprocess.Popen([sys.executable, "-c", WORKING, work], cwd=large, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "begins\n"
            # Other threads go on meanwhile.
            assert process.stdout.readline() == "others run\n"
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=60)[0] == "interrupted\n"
            assert time.monotonic() - begin < 10  # usually 0.1
        finally:
            process.kill()  # or leaving this block would wait for one that heeds nothing
    assert process.returncode == 0
