"""Single cells on NumPy arrays: one layer in forward direction, and its single steps."""

from __future__ import annotations

from ._keywords import explain_keywords
from ._minimal import minimal_cell
from .layers import _Network

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._types import Buffer, Candidate, State

__all__ = [
    "Cell",
    "ElmanCell",
    "GRUCell",
    "LSTMCell",
    "MinGRUCell",
    "MinLSTMCell",
    "SLSTMCell",
]


class Cell(_Network):
    """Base of all cells: one recurrent layer in forward direction.

    States are ``[B, H]``, or ``[H]`` for one row. Cells with ``S > 1`` states have ``[S, B, H]``, which can be
    unpacked: ``h, c = state``.

    Args:
        input_size: Input size ``I``.
        hidden_size: Hidden size ``H``.
        heads: Number of diagonal blocks ``[D, D]`` of the recurrent matrix, with ``D = H / heads``. Cells without a
            recurrent matrix have one head.
        bias: True or ``"both"``, ``"single"`` (``bias_ih`` only), False or ``"none"``.
        dtype: ``"float32"`` or ``"float64"``.
        seed: Seed of the initial weights, which are uniform in ±1/√H.

    Raises:
        InvalidArgument: An argument has an impossible value.
    """

    _cell = ""  # its name in the library

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 1,
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__(self._cell, input_size, hidden_size, heads=heads, bias=bias, dtype=dtype, seed=seed)

    def step(self, x: ArrayLike, h: State | None = None, *, out: Buffer | None = None) -> NDArray:
        """Runs one step and returns the new state. The output of the cell is its first state.

        Args:
            x: The input, ``[B, I]`` or ``[I]``. If x is on a GPU, the step runs there, and ``h`` and ``out`` must be on
                the same GPU.
            h: The state before the step, ``[B, H]`` or ``[H]``. For cells with several states ``[S, B, H]`` or
                ``[S, H]``, or a tuple of them. None: zeros.
            out: Array for the new state, which may be ``h`` itself. None: a new array.

        Raises:
            InvalidArgument: An array has the wrong shape.
            TypeError: An array has the wrong dtype.
        """
        after: Any = self._network.step(x, h, out)
        return after


class _ScanCell(Cell):
    """Base of cells whose gates depend on the input only."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        candidate: Candidate = "linear",
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        self._cell = minimal_cell(self._cell, candidate)
        super().__init__(input_size, hidden_size, bias=bias, dtype=dtype, seed=seed)
        self.candidate: Candidate = candidate


class MinGRUCell(_ScanCell):
    r"""Minimal GRU. Its gates depend on the input only: a sequence is one matrix product and one scan.

    .. math::
        z_t = \sigma(W_z x_t + b_z), \quad \tilde h_t = g(W_h x_t + b_h), \quad
        h_t = (1 - z_t) \odot h_{t-1} + z_t \odot \tilde h_t

    Feng et al., "Were RNNs All We Needed?", 2024, arXiv:2410.01201.

    Args:
        candidate: ``"linear"``: :math:`g(x) = x`. ``"positive"``: :math:`g(x) = x + 0.5` for :math:`x \ge 0` and
            :math:`\sigma(x)` below, as in appendix B of the paper. Files call this cell ``mingru-log``.

    The other arguments are those of :class:`Cell`.

    >>> import numpy as np, penstock
    >>> cell = penstock.MinGRUCell(2, 3)
    >>> h = cell.step(np.ones(2, np.float32))
    >>> y, h_last = cell.forward(np.ones((1, 2), np.float32))
    >>> bool((y[0] == h).all())
    True
    """

    _cell = "mingru"


class MinLSTMCell(_ScanCell):
    r"""Minimal LSTM. Its two gates are normalised to the sum 1.

    .. math::
        f_t = \sigma(W_f x_t + b_f), \quad i_t = \sigma(W_i x_t + b_i), \quad \tilde h_t = g(W_h x_t + b_h), \quad
        h_t = \frac{f_t}{f_t + i_t} \odot h_{t-1} + \frac{i_t}{f_t + i_t} \odot \tilde h_t

    with the arguments and g of :class:`MinGRUCell`. With a positive candidate, files call this cell ``minlstm-log``.
    Feng et al., "Were RNNs All We Needed?", 2024, arXiv:2410.01201.
    """

    _cell = "minlstm"


class LSTMCell(Cell):
    r"""Long short-term memory with the equations and weights of ``torch.nn.LSTM``. States: h, c.

    .. math::
        i_t = \sigma(W_i x_t + R_i h_{t-1}), \; f_t = \sigma(W_f x_t + R_f h_{t-1}), \;
        g_t = \tanh(W_g x_t + R_g h_{t-1}), \; o_t = \sigma(W_o x_t + R_o h_{t-1}), \\
        c_t = f_t \odot c_{t-1} + i_t \odot g_t, \quad h_t = o_t \odot \tanh(c_t)

    (without biases). Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997, with the
    forget gate of Gers et al., "Learning to Forget", Neural Computation 12(10), 2000.

    >>> import numpy as np, penstock
    >>> h, c = penstock.LSTMCell(2, 3).step(np.ones((4, 2), np.float32))
    >>> h.shape
    (4, 3)
    """

    _cell = "lstm"


class GRUCell(Cell):
    r"""Gated recurrent unit with the equations and weights of ``torch.nn.GRU``.

    .. math::
        r_t = \sigma(W_r x_t + R_r h_{t-1}), \quad z_t = \sigma(W_z x_t + R_z h_{t-1}), \\
        n_t = \tanh(W_n x_t + r_t \odot (R_n h_{t-1})), \quad h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}

    (without biases). With ``reset_after=False`` the reset gate applies before the product, as first published:
    :math:`n_t = \tanh(W_n x_t + R_n (r_t \odot h_{t-1}))`. Cho et al., "Learning Phrase Representations using RNN
    Encoder-Decoder", EMNLP 2014, arXiv:1406.1078.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        reset_after: bool = True,
        heads: int = 1,
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        self._cell = "gru" if reset_after else "gru-before"
        super().__init__(input_size, hidden_size, heads=heads, bias=bias, dtype=dtype, seed=seed)
        self.reset_after = reset_after


class ElmanCell(Cell):
    r"""Elman network: :math:`h_t = \phi(W x_t + R h_{t-1})` with tanh or relu (``nonlinearity``).

    Elman, "Finding Structure in Time", Cognitive Science 14(2), 1990.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        nonlinearity: str = "tanh",
        heads: int = 1,
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        cells = {"tanh": "elman", "relu": "elman-relu"}
        if nonlinearity not in cells:
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', not {nonlinearity!r}")
        self._cell = cells[nonlinearity]
        super().__init__(input_size, hidden_size, heads=heads, bias=bias, dtype=dtype, seed=seed)
        self.nonlinearity = nonlinearity


class SLSTMCell(Cell):
    r"""sLSTM of xLSTM with an exponential input gate, normaliser n and stabiliser m. States: h, c, n, m.

    .. math::
        m_t = \max(\tilde i_t, \log \sigma(\tilde f_t) + m_{t-1}), \quad i_t = e^{\tilde i_t - m_t}, \quad
        f_t = e^{\log \sigma(\tilde f_t) + m_{t-1} - m_t}, \\
        c_t = f_t \odot c_{t-1} + i_t \odot \tanh(\tilde z_t), \quad n_t = f_t \odot n_{t-1} + i_t, \quad
        h_t = \sigma(\tilde o_t) \odot c_t / n_t

    where each gate with a tilde is :math:`W x_t + R h_{t-1}`. A row with n = 0 has no past: its first step uses
    :math:`m_t = \tilde i_t, f_t = 0`. Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024, arXiv:2405.04517.
    """

    _cell = "slstm"


explain_keywords(globals())
