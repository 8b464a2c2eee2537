"""Data of each kind that small models learn in seconds."""

import math


def text_of(lines):
    return b"In the beginning was the word, and the word was with the maker of words.\n" * lines


def series_of(days):
    rows = (f"{day},{5 + math.sin(day / 5):.4f},{20 + 3 * math.cos(day / 7):.4f}\n" for day in range(days))
    return "day,level,flow\n" + "".join(rows)


def labelled_of(sequences):
    """Rising and falling sequences of eight steps."""
    return "sequence,label,value\n" + "".join(
        f"{sequence},{'up' if sequence % 2 else 'down'},{(1 if sequence % 2 else -1) * step + sequence / 40:.2f}\n"
        for sequence in range(sequences)
        for step in range(8)
    )
