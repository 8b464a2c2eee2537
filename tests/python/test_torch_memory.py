"""Memory that training steps of penstock.torch use again."""

import ctypes
import gc
import os
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
ours = pytest.importorskip("penstock.torch", reason="penstock is not installed")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def leave_a_gap_in_the_heap(size):
    """Makes the C library serve the next large allocation from its heap, as in a process that has run for long."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    small = 64 << 10  # bytes, for which the C library does not ask the system
    pieces = [library.malloc(small) for _ in range(size // small)]
    end = library.malloc(small)  # keeps the heap from shrinking
    for piece in pieces:
        library.free(piece)
    return lambda: library.free(end)


def trained(layer, x):
    y, _ = layer(x)
    y.sum().backward()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not say how much memory is used")
@pytest.mark.skipif(RELEASE < (2, 11), reason="PyTorch has no tensors over memory of others")
class TestMemoryOfTraining:
    rows, steps, hidden = 32, 128, 256

    def setup_method(self):
        self.layer = ours.LSTM(4, self.hidden)
        self.x = torch.randn(self.steps, self.rows, 4)
        form = (None, None, None, None, "lstm", 1, False, False, True, False)
        self.tape = torch.ops.penstock.recurrent(self.x, list(self.layer.parameters()), *form)[2].nbytes
        assert self.tape > 4 * 6 * self.rows * self.steps * self.hidden  # floats: four gates and two states at least
        ours.release_memory()

    @pytest.mark.parametrize("gap", [False, True], ids=["", "of a heap with gaps"])
    def test_is_that_of_the_call_before_and_can_be_given_back(self, gap, request):
        if gap:
            request.addfinalizer(leave_a_gap_in_the_heap(4 * self.tape))
        for _ in range(3):
            trained(self.layer, self.x)
        before = resident()
        for _ in range(10):
            trained(self.layer, self.x)
        after = resident()
        assert after - before < self.tape  # ten of them, were they not used again
        given_back = ours.release_memory()
        assert self.tape <= given_back < 1.25 * self.tape
        assert resident() < after - given_back / 2
        assert ours.release_memory() == 0

    def test_belongs_to_its_graph_until_nobody_has_it(self):
        graphs = [self.layer(self.x)[0] for _ in range(3)]
        assert ours.release_memory() == 0
        del graphs
        gc.collect()
        assert 3 * self.tape <= ours.release_memory() < 3 * 1.25 * self.tape

    def test_serves_shorter_batches(self):
        for steps in (self.steps, self.steps // 2, self.steps // 3, self.steps):
            trained(self.layer, self.x[:steps])
        assert self.tape <= ours.release_memory() < 1.25 * self.tape

    def test_never_takes_more_than_was_in_use_at_once(self):
        """Of two sizes that differ much neither serves the other: one goes for the other's sake."""
        for _ in range(3):
            for part in (self.x, self.x[: self.steps // 6]):
                trained(self.layer, part)
        assert ours.release_memory() < self.tape / 2

    def test_goes_back_when_nobody_wants_it(self):
        graphs = [self.layer(self.x)[0] for _ in range(2)]  # in use at once
        del graphs
        for _ in range(40):
            trained(self.layer, self.x)
        assert self.tape <= ours.release_memory() < 1.25 * self.tape  # one of two

    def test_is_shared_by_threads(self):
        def work():
            for _ in range(5):
                y, _ = self.layer(self.x[: self.steps // 2])
                torch.autograd.grad(y.sum(), list(self.layer.parameters()))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ours.release_memory() <= 4 * 1.25 * self.tape / 2
