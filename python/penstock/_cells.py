"""The cells by themselves: one layer in forward direction on NumPy arrays, and its single steps."""

from __future__ import annotations

from ._keywords import explain_keywords
from .layers import _Network

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the import
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ._types import Buffer, State

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
    """One recurrent layer in forward direction: the base of all cells.

    Args:
        input_size: ``I``.
        hidden_size: ``H``.
        heads: Into how many blocks of ``D = H / heads`` the recurrent matrix falls. Cells without one have one head.
        bias: True or ``"both"``, ``"single"`` (``bias_ih`` only), False or ``"none"``.
        dtype: ``"float32"`` or ``"float64"``.
        seed: Of the first weights, which are uniform in ±1/√H.

    States are ``[B, H]``, or ``[H]`` of one row; of cells with ``S > 1`` states ``[S, B, H]``, which unpack:
    ``h, c = state``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 1,
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
        _cell: str = "",
    ) -> None:
        super().__init__(
            _cell,
            input_size,
            hidden_size,
            layers=1,
            direction="forward",
            heads=heads,
            bias=bias,
            dropout=0.0,
            dtype=dtype,
            seed=seed,
        )

    def step(self, x: ArrayLike, h: State | None = None, *, out: Buffer | None = None) -> NDArray:
        """One step: the new state from x ``[B, I]`` or ``[I]`` and the state before it (None: zeros).

        The output is the first state: the state itself of a cell that has one.

        Args:
            x: The input.
            h: The state, ``[B, H]`` or ``[H]``; of several states ``[S, B, H]`` or ``[S, H]``, or a tuple of them.
            out: Where to write the new state, which may be ``h`` itself; a new array if it is None.
        """
        after: Any = self._network.step(x, h, out)
        return after


class MinGRUCell(Cell):
    r"""Minimal GRU: gates of the input alone, so that a sequence is one matrix product and a scan.

    .. math::
        z_t = \sigma(W_z x_t + b_z), \quad \tilde h_t = g(W_h x_t + b_h), \quad
        h_t = (1 - z_t) \odot h_{t-1} + z_t \odot \tilde h_t

    with :math:`g(x) = x`, or with ``log_space=True`` the positive :math:`g(x) = x + 0.5` for :math:`x \ge 0` and
    :math:`\sigma(x)` below. Feng et al., "Were RNNs All We Needed?", 2024, arXiv:2410.01201.

    >>> import numpy as np, penstock
    >>> cell = penstock.MinGRUCell(2, 3)
    >>> h = cell.step(np.ones(2, np.float32))
    >>> y, h_last = cell.forward(np.ones((1, 2), np.float32))
    >>> bool((y[0] == h).all())
    True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        log_space: bool = False,
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias=bias, dtype=dtype, seed=seed, _cell="mingru-log" if log_space else "mingru"
        )
        self.log_space = log_space


class MinLSTMCell(Cell):
    r"""Minimal LSTM, whose two gates are shares of one: the state neither grows nor shrinks with time.

    .. math::
        f_t = \sigma(W_f x_t + b_f), \quad i_t = \sigma(W_i x_t + b_i), \quad \tilde h_t = g(W_h x_t + b_h), \quad
        h_t = \frac{f_t}{f_t + i_t} \odot h_{t-1} + \frac{i_t}{f_t + i_t} \odot \tilde h_t

    with g as in :class:`MinGRUCell`. Feng et al., "Were RNNs All We Needed?", 2024, arXiv:2410.01201.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        log_space: bool = False,
        bias: bool | str = True,
        dtype: DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias=bias, dtype=dtype, seed=seed, _cell="minlstm-log" if log_space else "minlstm"
        )
        self.log_space = log_space


class LSTMCell(Cell):
    r"""Long short-term memory, with ``torch.nn.LSTM``'s equations and weights. States h, c.

    .. math::
        i_t = \sigma(W_i x_t + R_i h_{t-1}), \; f_t = \sigma(W_f x_t + R_f h_{t-1}), \;
        g_t = \tanh(W_g x_t + R_g h_{t-1}), \; o_t = \sigma(W_o x_t + R_o h_{t-1}), \\
        c_t = f_t \odot c_{t-1} + i_t \odot g_t, \quad h_t = o_t \odot \tanh(c_t)

    (biases left out). Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 9(8), 1997; with the
    forget gate of Gers et al., "Learning to Forget", Neural Computation 12(10), 2000.

    >>> import numpy as np, penstock
    >>> h, c = penstock.LSTMCell(2, 3).step(np.ones((4, 2), np.float32))
    >>> h.shape
    (4, 3)
    """

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
        super().__init__(input_size, hidden_size, heads=heads, bias=bias, dtype=dtype, seed=seed, _cell="lstm")


class GRUCell(Cell):
    r"""Gated recurrent unit, with ``torch.nn.GRU``'s equations and weights.

    .. math::
        r_t = \sigma(W_r x_t + R_r h_{t-1}), \quad z_t = \sigma(W_z x_t + R_z h_{t-1}), \\
        n_t = \tanh(W_n x_t + r_t \odot (R_n h_{t-1})), \quad h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}

    (biases left out); with ``reset_after=False`` the reset gate comes before the product,
    :math:`n_t = \tanh(W_n x_t + R_n (r_t \odot h_{t-1}))`, as first published. Cho et al., "Learning Phrase
    Representations using RNN Encoder-Decoder", EMNLP 2014, arXiv:1406.1078.
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
        super().__init__(
            input_size,
            hidden_size,
            heads=heads,
            bias=bias,
            dtype=dtype,
            seed=seed,
            _cell="gru" if reset_after else "gru-before",
        )
        self.reset_after = reset_after


class ElmanCell(Cell):
    r"""Elman network: :math:`h_t = \phi(W x_t + R h_{t-1})` with tanh or relu.

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
        super().__init__(
            input_size, hidden_size, heads=heads, bias=bias, dtype=dtype, seed=seed, _cell=cells[nonlinearity]
        )
        self.nonlinearity = nonlinearity


class SLSTMCell(Cell):
    r"""sLSTM of xLSTM: exponential input gate, normaliser n and stabiliser m. States h, c, n, m.

    .. math::
        m_t = \max(\tilde i_t, \log \sigma(\tilde f_t) + m_{t-1}), \quad i_t = e^{\tilde i_t - m_t}, \quad
        f_t = e^{\log \sigma(\tilde f_t) + m_{t-1} - m_t}, \\
        c_t = f_t \odot c_{t-1} + i_t \odot \tanh(\tilde z_t), \quad n_t = f_t \odot n_{t-1} + i_t, \quad
        h_t = \sigma(\tilde o_t) \odot c_t / n_t

    where each gate with a tilde is :math:`W x_t + R h_{t-1}`; a row whose n is 0 has seen nothing yet, and starts with
    :math:`m_t = \tilde i_t, f_t = 0`. Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024, arXiv:2405.04517.
    """

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
        super().__init__(input_size, hidden_size, heads=heads, bias=bias, dtype=dtype, seed=seed, _cell="slstm")


explain_keywords(globals())
