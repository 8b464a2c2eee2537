"""The peers of recurrent networks in tables: a Transformer with rotary positions, and torch.nn's recurrent layers.

Pre-norm blocks: attention (or a recurrent layer), then a gated feed-forward (attention only), each beside a residual
connection. This is the form that recent language models have.
"""

import argparse
import contextlib

import torch
from torch.nn import functional


class Rotary(torch.nn.Module):
    """Rotates pairs of a head's values by angles that grow with the position (Su et al. 2021)."""

    def __init__(self, head_size):
        super().__init__()
        self.register_buffer("rates", 10_000.0 ** (-torch.arange(0, head_size, 2) / head_size), persistent=False)

    def forward(self, x, first=0):
        positions = torch.arange(first, first + x.shape[-2], device=x.device)
        angles = positions[:, None] * self.rates
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Cache:
    """Keys and values of the positions so far, [B, heads, T, size]; the room doubles when it is full."""

    def __init__(self):
        self.length, self.parts = 0, []

    def append(self, *added):
        """Adds keys and values, and returns those of all positions."""
        length = self.length + added[0].shape[-2]
        if not self.parts or length > self.parts[0].shape[-2]:
            room = max(length, 2 * self.length)
            larger = [part.new_empty(*part.shape[:-2], room, part.shape[-1]) for part in added]
            for new, old in zip(larger, self.parts):
                new[..., :self.length, :] = old[..., :self.length, :]
            self.parts = larger
        for part, new in zip(self.parts, added):
            part[..., self.length:length, :] = new
        self.length = length
        return [part[..., :length, :] for part in self.parts]

    def bytes(self):
        """What the positions take, without the room."""
        return sum(part[..., :self.length, :].numel() * part.element_size() for part in self.parts)


class State:
    """The state of a recurrent layer; None before the first step."""

    value = None

    def bytes(self):
        parts = self.value if isinstance(self.value, tuple) else (self.value,)
        return sum(part.numel() * part.element_size() for part in parts)


class Attention(torch.nn.Module):
    memory = Cache

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.of_input = torch.nn.Linear(width, 3 * width, bias=False)
        self.of_output = torch.nn.Linear(width, width, bias=False)
        self.rotary = Rotary(width // heads)

    def forward(self, x, cache=None):
        """x [B, T, width]; cache: a Cache of the positions before, which grows by those of x."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.of_input(x).chunk(3, -1))
        before = cache.length if cache else 0
        query, key = self.rotary(query, before), self.rotary(key, before)
        if cache:
            key, value = cache.append(key, value)
        steps = x.shape[1]
        seen = None  # which positions a query reads, where they are neither all nor those of a square
        if before > 0 and steps > 1:
            seen = torch.ones(steps, before + steps, dtype=torch.bool, device=x.device).tril(before)
        y = functional.scaled_dot_product_attention(query, key, value, seen, is_causal=before == 0)
        return self.of_output(y.transpose(1, 2).flatten(-2))


class GatedFeedForward(torch.nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gates, self.values = torch.nn.Linear(width, inner, bias=False), torch.nn.Linear(width, inner, bias=False)
        self.of_output = torch.nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.of_output(functional.silu(self.gates(x)) * self.values(x))


class Recurrent(torch.nn.Module):
    """A recurrent layer of torch.nn with the output alone."""

    memory = State

    def __init__(self, kind, width):
        super().__init__()
        self.layer = getattr(torch.nn, kind)(width, width, batch_first=True)

    def forward(self, x, state=None):
        y, last = self.layer(x, state.value if state else None)
        if state:
            state.value = last
        return y


class Network(torch.nn.Module):
    """Tokens [B, T] to logits [B, T, classes]. kind: Transformer, or a recurrent layer of torch.nn.

    Without a vocabulary the steps are numbers [B, T].
    """

    def __init__(self, kind, vocabulary, classes, width, blocks, heads=4, inner=None):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width) if vocabulary else torch.nn.Linear(1, width)
        layers = []
        for _ in range(blocks):
            if kind == "Transformer":
                layers += [Attention(width, heads), GatedFeedForward(width, inner or width // 3 * 8)]
            else:
                layers.append(Recurrent(kind, width))
        self.layers = torch.nn.ModuleList(layers)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(len(layers) + 1))
        self.head = torch.nn.Linear(width, classes)

    def memory(self):
        """What each layer remembers of the steps before, for forward()."""
        return [layer.memory() if hasattr(layer, "memory") else None for layer in self.layers]

    def forward(self, steps, memory=None):
        x = self.embedding(steps if isinstance(self.embedding, torch.nn.Embedding) else steps[..., None])
        for i, (norm, layer) in enumerate(zip(self.norms, self.layers)):
            of_layer = (memory[i],) if memory and memory[i] else ()
            x = x + layer(norm(x), *of_layer)
        return self.head(self.norms[-1](x))


def parameters_of(model):
    return sum(p.numel() for p in model.parameters())


def largest(make, size, step):
    """The largest size, in steps from a first one, for which make(size) is not None."""
    while make(size + step) is not None:
        size += step
    return size


def network_of_size(kind, vocabulary, classes, blocks, parameters):
    """The largest network of at most so many parameters, and its width.

    The width of a Transformer is a multiple of 8, for four heads of even size; its feed-forwards take what is left.
    """
    def make(width, inner=None):
        made = Network(kind, vocabulary, classes, width, blocks, inner=inner)
        return made if parameters_of(made) <= parameters else None

    step = 8 if kind == "Transformer" else 4
    width = largest(make, step, step)
    inner = largest(lambda inner: make(width, inner), width // 3 * 8, 8) if kind == "Transformer" else None
    if make(width, inner) is None:
        raise ValueError(f"a width of {width} has more than {parameters:,} parameters")
    return make(width, inner), width


def computing(precision):
    """A context in which networks compute in this precision on a GPU: f32 or bf16."""
    return torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


def device_memory():
    """Megabytes that PyTorch had in use on a GPU at most; 0 without one."""
    return torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_initialized() else 0.0


def parser_of(description, blocks, batch, length):
    """Returns a parser of the arguments that all trainings of these networks share, with these defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["Transformer", "LSTM", "GRU"], default="Transformer")
    parser.add_argument("--parameters", type=int, required=True)
    parser.add_argument("--blocks", type=int, default=blocks)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--length", type=int, default=length)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: of training on a GPU")
    parser.add_argument("--device", default="cpu")
    return parser


def begun(parser):
    """Returns the arguments after setting threads and seed."""
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    return arguments
