"""Error messages for unknown arguments and for values of the wrong type.

:func:`explain_keywords` wraps all public functions; their messages then suggest the argument that was probably meant.
"""

from __future__ import annotations

import functools
import sys
import types

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

#: Names of arguments in other packages, and those of Penstock. The first one that the function has is suggested.
_OTHER_WORDS = {
    "ahead": ("horizon",),
    "alpha": ("learning_rate",),
    "batch_first": ("layout", "batch_first"),
    "batch_size": ("batch",),
    "bidirectional": ("direction",),
    "bptt": ("length",),
    "clip_grad": ("clip",),
    "columns": ("inputs", "targets"),
    "covariates": ("known",),
    "cuda": ("device",),
    "depth": ("blocks", "layers", "num_layers"),
    "dim": ("width", "hidden_size"),
    "dtype": ("precision",),
    "early_stopping": ("patience",),
    "exog": ("known",),
    "features": ("inputs",),
    "filename": ("path",),
    "freq": ("irregular",),
    "future_covariates": ("known",),
    "gpu": ("device",),
    "grad_clip": ("clip",),
    "h": ("horizon",),
    "h0": ("state",),
    "hx": ("state",),
    "id": ("group", "sequence_column"),
    "input_chunk_length": ("length",),
    "initial_state": ("state",),
    "input_dim": ("input_size",),
    "intervals": ("quantiles",),
    "iterations": ("steps",),
    "labels": ("label_column",),
    "layers": ("blocks", "num_layers"),
    "levels": ("quantiles",),
    "lr": ("learning_rate",),
    "max_epochs": ("epochs",),
    "max_length": ("longest",),
    "max_steps": ("steps",),
    "max_time": ("seconds",),
    "max_tokens": ("bytes",),
    "model_type": ("cell",),
    "n": ("bytes",),
    "n_jobs": ("threads",),
    "n_layers": ("blocks", "layers", "num_layers"),
    "nhead": ("heads", "num_heads"),
    "num_epochs": ("epochs",),
    "num_layers": ("blocks", "layers"),
    "num_workers": ("threads",),
    "opt": ("optimizer",),
    "output_chunk_length": ("horizon",),
    "random_state": ("seed",),
    "rnn_type": ("cell",),
    "rows": ("inputs",),
    "sep": ("delimiter",),
    "seq_len": ("length",),
    "series": ("group",),
    "series_id": ("group",),
    "time_column": ("date_column",),
    "units": ("hidden_size",),
    "val_split": ("validation_fraction",),
    "validation_split": ("validation_fraction",),
    "verbose": ("progress",),
    "wd": ("weight_decay",),
    "window": ("length",),
}

#: Functions to search for an argument that was given to the wrong function.
_OWNERS = ("Model", "train", "open_text", "open_series", "open_labelled", "open_labelled_texts", "open_sound", "open_task",
           "Model.predict", "Model.generate", "Recurrent")  # fmt: skip


def _keywords(function: Any) -> tuple[str, ...]:
    """Returns the names of keyword arguments, without those that begin with an underscore."""
    code = getattr(function, "__wrapped__", function).__code__  # of the function inside the wrapper, if there is one
    names = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    return tuple(name for name in names if not name.startswith("_") and name not in ("self", "cls"))


def defaults(function: Any) -> dict[str, Any]:
    """Returns the default values of keyword arguments."""
    return getattr(function, "__wrapped__", function).__kwdefaults__ or {}


def _owners(name: str) -> Iterator[str]:
    """Yields the functions and classes of the package that have an argument of this name."""
    package: Any = sys.modules[__package__]
    for owner in _OWNERS:
        function = functools.reduce(getattr, owner.split("."), package)
        if isinstance(function, type):
            function = vars(function)["__init__"]
        if name in _keywords(function):
            yield owner


def _hint(unknown: str, known: tuple[str, ...]) -> str:
    import difflib

    meant = [word for word in _OTHER_WORDS.get(unknown.lower(), ()) if word in known]
    meant += difflib.get_close_matches(unknown, known, 1, 0.7)
    if meant:
        return f", did you mean {meant[0]!r}?"
    if unknown in _ELSEWHERE:
        return elsewhere_hint(unknown)
    owner = next(_owners(unknown), None)
    if owner is not None:
        return f": {unknown!r} is an argument of penstock.{owner}"
    return f", only {', '.join(known)}" if known else ""


def no_argument(function: Any, name: str, unknown: str) -> str:
    """Returns the message for an argument that the function, called ``name``, does not have."""
    return f"{name}() has no argument {unknown!r}{_hint(unknown, _keywords(function))}"


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Issues a warning at the line outside the package that called it."""
    import warnings

    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


#: By annotation: the attribute that a value must have, and the name of the type in messages.
_KINDS = {
    "int": ("__index__", "a whole number"),
    "float": ("__float__", "a number"),
    "str": ("__str__", "a str"),
}


def _kinds(function: Any) -> dict[str, tuple[str, str, bool]]:
    """Returns {argument: (attribute, name of the type, may be None)} for arguments that are numbers or strings."""
    kinds = {}
    for name, annotation in function.__annotations__.items():
        base = str(annotation).removesuffix(" | None")
        if base in _KINDS and name != "return":
            kinds[name] = (*_KINDS[base], base != annotation)
    return kinds


def _check(name: str, value: Any, kind: tuple[str, str, bool]) -> None:
    """Raises TypeError for a value that is clearly of the wrong type."""
    attribute, called, optional = kind
    fits = isinstance(value, str) if attribute == "__str__" else hasattr(value, attribute)
    if not fits and not (optional and value is None):
        shown = repr(value) if len(repr(value)) <= 60 else type(value).__name__
        raise TypeError(f"{name} must be {called}, not {shown}") from None


_TAKES_ANY = 0x08  # flag of code.co_flags: the function has **kwargs


def _check_missing(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises TypeError if a call lacks positional arguments without a default."""
    code = function.__code__
    needed = code.co_varnames[: code.co_argcount - len(function.__defaults__ or ())]
    missing = [repr(key) for key in needed[len(args) :] if key not in kwargs]
    if missing:
        line = ", ".join(key for key in needed if key not in ("self", "cls"))
        text = f"{name}() needs {' and '.join(missing)}: {name}({line}); docs/coming_from.md has the lines of other packages"
        raise TypeError(text) from None


def check_unknown(function: Any, unknown: dict[str, Any]) -> None:
    """Raises TypeError for arguments that a function took as ``**unknown``."""
    for key in unknown:
        raise TypeError(no_argument(function, function.__name__, key))


def _check_call(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises TypeError for the first argument of a failed call that is unknown, missing or of the wrong type."""
    code = function.__code__
    allowed = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes_any = code.co_flags & _TAKES_ANY
    unknown = None if takes_any else next((key for key in kwargs if key not in allowed), None)
    if unknown is not None:
        raise TypeError(no_argument(function, name, unknown)) from None
    _check_missing(function, name, args, kwargs)
    kinds = _kinds(function)
    for key, value in (*zip(allowed, args), *kwargs.items()):
        if key in kinds:
            _check(key, value, kinds[key])


def _explained(function: Any, name: str) -> Any:
    """Wraps a function: if it fails because of a wrong argument, the error suggests the right one."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:  # checked only now: a check before every call would take longer than some calls
            _check_call(function, name, args, kwargs)
            raise

    return call


def _is_explainable(function: object) -> bool:
    """Returns True for a Python function of the package."""
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        return False
    return function.__module__.startswith(__package__)


_ON_A_GPU = 'cell.forward(x, device="cuda") of the same cell'
#: By a name of another package or project, an attribute or an argument: what Penstock has instead.
_ELSEWHERE = {
    "Bidirectional": 'penstock.Recurrent(..., direction="bidirectional") or penstock.torch.LSTM(bidirectional=True)',
    "CUDA_AVAILABLE": "penstock.cuda.is_available()",
    "FlashRNNConfig": "penstock.torch.LSTM(num_heads=...), where a planner chooses the kernel",
    "Elman": "penstock.torch.RNN",
    "IndRNN": 'penstock.torch.Recurrent("elman-relu", I, H, num_heads=H)',
    "LayerNormGRU": "penstock.torch.GRU, or penstock.cell(...) for a cell of your own",
    "LayerNormLSTM": "penstock.torch.LSTM, or penstock.cell(...) for a cell of your own",
    "MinGRUCellCUDA": _ON_A_GPU,
    "MinLSTMCellCUDA": _ON_A_GPU,
    "SimpleRNN": 'penstock.Recurrent("elman", ...) or penstock.torch.RNN',
    "StableRNNTrainer": "penstock.torch.StableTrainer(model, learning_rate=1e-3, clip=1.0)",
    "StreamingRNNInference": "penstock.Session(penstock.Model.load(path)) or penstock.torch.Session(model)",
    "backend": "a planner chooses the kernel: layer.explain(rows, steps) says which",
    "cuda_parallel_scan": "penstock.scan(a, b) of arrays on a GPU",
    "cuda_parallel_scan_optimized": "penstock.scan(a, b) of arrays on a GPU",
    "dropconnect": "penstock.torch.regularise(layer, drop_connect=...)",
    "embedding_dim": "input_size, and hidden_size of the same size",
    "expansion_factor": "hidden_size, and a torch.nn.Linear behind the layer",
    "export_for_deployment": "penstock.torch.export_files(model, inputs, folder)",
    "extract_scan_params": 'cell.forward(x, mode="scan") without them, or penstock.scan(a, b) with yours',
    "flashrnn": 'penstock.torch.recurrence(wx, weight_hh, bias) or penstock.torch.LSTM(num_heads=...)',
    "from_native_weights": "penstock.interchange.from_haste(tensors)",
    "function": "the name of the cell or class, such as penstock.torch.GRU(num_heads=...)",
    "get_weights": "layer.state_dict() or penstock.interchange.to_keras(weights)",
    "go_backwards": 'direction="reverse", with outputs in the order of the input',
    "h0": "hx, the state of the call before",
    "heinsen_associative_scan_log": "penstock.log_scan(log_a, b) or penstock.torch.log_scan(log_a, b)",
    "hidden": "hx in penstock.torch, and h0 otherwise",
    "hx": "h0, the state of the call before",
    "initial_state": "hx in penstock.torch, and h0 otherwise",
    "initial_states": "hx in penstock.torch, and h0 otherwise",
    "log_space": 'candidate="positive"',
    "mLSTMCell": "not a layer: use that of xlstm beside penstock.torch.SLSTM",
    "mLSTMLayer": "not a layer: use that of xlstm beside penstock.torch.SLSTM",
    "mask": "lengths, or reset_mask for sequences behind each other",
    "minGRU": "penstock.torch.MinGRU",
    "minGRULM": "penstock.torch.MinGRU in a network of yours, or 'penstock train TEXT'",
    "minLSTM": "penstock.torch.MinLSTM",
    "minLSTMLM": "penstock.torch.MinLSTM in a network of yours, or 'penstock train TEXT --cell minlstm'",
    "pack_padded_sequence": "layer(x, lengths=[...]); packed sequences of torch.nn.utils.rnn work, too",
    "parallel_scan": "penstock.scan(a, b)",
    "prev_hidden": "hx in penstock.torch, and h0 otherwise",
    "process_sequence": 'cell.forward(x, mode="sequential")',
    "process_sequence_parallel": 'cell.forward(x, mode="scan")',
    "proj_out": "a torch.nn.Linear behind the layer",
    "recurrent_dropout": "penstock.torch.regularise(layer, recurrent_dropout=...)",
    "reset_states": "layer.forward(x) without a state",
    "return_last_states": "y, state = layer(x), which always returns the state",
    "return_next_prev_hidden": "out, h = layer(x, h), which always returns the state",
    "return_sequences": "y, state = layer.forward(x): y has all outputs, y[:, -1] the last",
    "return_state": "y, state = layer.forward(x), which always returns the state",
    "return_state_sequence": "every_state=True of layer(x) for LSTM and SLSTM; the outputs are the states of others",
    "sLSTMBlock": "penstock.torch.SLSTM, and your own norm and feed-forward behind it",
    "sLSTMBlockConfig": "the arguments of penstock.torch.SLSTM",
    "sLSTMCell": "penstock.torch.SLSTMCell",
    "sLSTMLayer": "penstock.torch.SLSTM",
    "sLSTMLayerConfig": "the arguments of penstock.torch.SLSTM",
    "sequential_scan": "penstock.scan(a, b)",
    "set_weights": "layer.load_state_dict(...) or penstock.interchange.from_keras(weights)",
    "state": "hx in penstock.torch, and h0 otherwise",
    "stateful": "y, state = layer.forward(x, state), with the state of the call before",
    "states": "hx in penstock.torch, and h0 otherwise",
    "to_native_weights": "penstock.interchange.to_haste(weights)",
    "xLSTMBlockStack": "penstock.torch.SLSTM for its sLSTM layers; the mLSTM layers stay those of xlstm",
    "xLSTMBlockStackConfig": "the arguments of penstock.torch.SLSTM; the mLSTM layers stay those of xlstm",
    "zoneout": "penstock.torch.regularise(layer, zoneout=...)",
}


def elsewhere_hint(name: str) -> str:
    """Returns a hint for a name of another package or project; empty for other names."""
    meant = _ELSEWHERE.get(name)
    return f": here it is {meant}; docs/coming_from.md has more" if meant else ""


def near_hint(name: str, module: Any) -> str:
    """Returns a hint at the public name of a module that is nearest to `name`, whatever its case; else empty."""
    import difflib

    known = {public.lower(): public for public in dir(module) if not public.startswith("_")}
    close = difflib.get_close_matches(name.lower(), known, 1, 0.7)
    return f", did you mean '{module.__name__}.{known[close[0]]}'?" if close else ""


def attribute_hint(name: str) -> str:
    """Returns a hint at the right name for an unknown attribute of the package; empty if there is none."""
    if name in _ELSEWHERE:
        return elsewhere_hint(name)
    package: Any = sys.modules[__package__]
    modules = ("RNN", "GRU", "LSTM", "SLSTM", "MinGRU", "MinLSTM", "convert", "convert_back", "SequenceModel")
    if name in modules:
        return f"; penstock.torch has {name}"
    if name == "search":
        return "; examples/search_settings.py searches settings with Optuna"
    methods = [method for method in ("load", "save", "predict", "generate") if name in (method, f"{method}_model")]
    if methods:
        return f"; it is a method: penstock.Model.{methods[0]}"
    words = {"fit": "train", "forecast": "Model.predict", "read_csv": "open_series", "load_model": "Model.load"}
    return f", did you mean 'penstock.{words[name]}'?" if name in words else near_hint(name, package)


#: Functions that may take only microseconds: a wrapper would slow them down noticeably.
_QUICK = frozenset(
    {"backward", "forward", "log_scan", "log_scan_backward", "push", "reset", "scan", "scan_backward", "step"}
)


def _is_explained(name: str) -> bool:
    return name == "__init__" or not name.startswith("_") and name not in _QUICK


def _explain_class(value: type, methods: Iterable[str]) -> None:
    for key in methods:
        member = value.__dict__.get(key, getattr(value, key))
        function = member.__func__ if isinstance(member, classmethod) else member
        if key not in value.__dict__:  # of a base, which may be explained under its own name
            function = getattr(function, "__wrapped__", function)
        if not _is_explainable(function):
            continue
        shown = value.__name__ if key == "__init__" else f"{value.__name__}.{key}"
        explained = _explained(function, shown)
        setattr(value, key, classmethod(explained) if isinstance(member, classmethod) else explained)


def explain_keywords(module: dict[str, Any], *, constructors_alone: bool = False) -> None:
    """Wraps public functions and methods of public classes; their errors then suggest the argument that was meant.

    Functions that may take only microseconds are not wrapped.

    Args:
        module: The ``globals()`` of the module, after all definitions.
        constructors_alone: Wraps constructors only. PyTorch modules need this, because ``torch.compile`` reads their
            methods.
    """
    for key in module["__all__"]:
        value = module[key]
        if isinstance(value, type) and value.__module__.startswith(__package__):
            methods = () if constructors_alone else filter(_is_explained, vars(value))
            _explain_class(value, {"__init__", *methods})
        elif _is_explainable(value) and _is_explained(key) and not constructors_alone:
            module[key] = _explained(value, key)
