"""The peers of recurrent networks in tables: a Transformer with rotary positions, and torch.nn's recurrent layers.

Pre-norm blocks: attention (or a recurrent layer), then a gated feed-forward (attention only), each beside a residual
connection. This is the form that recent language models have.
"""

import resource

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


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.of_input = torch.nn.Linear(width, 3 * width, bias=False)
        self.of_output = torch.nn.Linear(width, width, bias=False)
        self.rotary = Rotary(width // heads)

    def forward(self, x, cache=None):
        """x [B, T, width]; cache: keys and values of the positions before, which grow by those of x."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.of_input(x).chunk(3, -1))
        before = 0 if cache is None or not cache else cache[0].shape[-2]
        query, key = self.rotary(query, before), self.rotary(key, before)
        if cache is not None:
            if cache:
                key, value = torch.cat((cache[0], key), -2), torch.cat((cache[1], value), -2)
            cache[:] = [key, value]
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=before == 0)
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

    def __init__(self, kind, width):
        super().__init__()
        self.layer = getattr(torch.nn, kind)(width, width, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Network(torch.nn.Module):
    """Tokens [B, T] to logits [B, T, classes]. kind: Transformer, or a recurrent layer of torch.nn."""

    def __init__(self, kind, vocabulary, classes, width, blocks, heads=4):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        layers = []
        for _ in range(blocks):
            if kind == "Transformer":
                layers += [Attention(width, heads), GatedFeedForward(width, (8 * width // 3 + 7) // 8 * 8)]
            else:
                layers.append(Recurrent(kind, width))
        self.layers = torch.nn.ModuleList(layers)
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(len(layers) + 1))
        self.head = torch.nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(self.norms[-1](x))


def parameters_of(model):
    return sum(p.numel() for p in model.parameters())


def network_of_size(kind, vocabulary, classes, blocks, parameters):
    """The widest network of at most so many parameters; widths are multiples of 8, so that four heads have even sizes."""
    width = 8
    while parameters_of(Network(kind, vocabulary, classes, width + 8, blocks)) <= parameters:
        width += 8
    return Network(kind, vocabulary, classes, width, blocks), width


class Peak:
    """The largest memory of a device, in MB, from now on: on a CPU, what the process grew by; on a GPU, PyTorch's."""

    def __init__(self, device):
        self.device, self.before = device, self._process()
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()

    @staticmethod
    def _process():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def megabytes(self):
        if self.device != "cpu":
            return torch.cuda.max_memory_allocated() / 1e6
        return self._process() - self.before
