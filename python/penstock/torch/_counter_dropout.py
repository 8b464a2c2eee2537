"""Dropout whose masks are functions of a counter: the masks of `penstock train`, and the same for any division of a batch.

The numbers are those of src/core/base/counter_random.h: splitmix64's finaliser of a key and an index, in 64 bits that
wrap around.
"""

import torch

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _signed(word):
    """Returns 64 bits as the int64 that has them."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _mix(word):
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def _mixed(words):
    """The same for an int64 tensor, whose >> would copy the sign."""
    words = (words ^ ((words >> 30) & ((1 << 34) - 1))) * _signed(_FIRST)
    words = (words ^ ((words >> 27) & ((1 << 37) - 1))) * _signed(_SECOND)
    return words ^ ((words >> 31) & ((1 << 33) - 1))


def seed_of_step(seed, step):
    """Returns the seed of a training step's dropouts, as an int64."""
    word = (_mix(((seed ^ (_GOLDEN * (step + 1))) + 2 * _GOLDEN) & _WORD) * 5) & _WORD
    return _signed((((word << 7) | (word >> 57)) & _WORD) * 9)


def keys_of(masks, blocks):
    """Returns int64 [blocks, 3] from [seed of the step, number of the first row]: the keys of the two dropouts of each
    block, and that number."""
    sites = torch.tensor([_signed(_GOLDEN * (site + 1)) for site in range(2 * blocks)], device=masks.device)
    return torch.cat([_mixed(masks[0] + sites).view(blocks, 2), masks[1].expand(blocks, 1)], 1)


def counter_dropout(x, probability, key, first):
    """Returns x [B, T, C] with values zeroed and the others divided by 1 - probability.

    Args:
        x: The values.
        probability: Probability of zeroing one.
        key: int64 []: decides the masks.
        first: int64 []: number of the first row of x in the whole batch.
    """
    if probability == 0.0:
        return x
    index = torch.arange(x.numel(), device=x.device).view(x.shape) + first * (x.shape[1] * x.shape[2])
    bits = (_mixed(index * _signed(_GOLDEN) + key) >> 32) & 0xFFFFFFFF
    return torch.where(bits >= int(probability * 2**32), x * (1.0 / (1.0 - probability)), 0.0)
