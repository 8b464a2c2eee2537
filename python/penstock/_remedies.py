"""Remedies of unstable training, as the library words them."""

import re


def in_python(text: str) -> str:
    """Writes options in a message as arguments: "the option 'clip=1'" becomes "clip=1"."""
    text = text.replace("the option 'norms=all'", "end_norms=True").replace("cell=gru", 'cell="gru"')
    text = text.replace("initial_weights=orthogonal", 'initial_weights="orthogonal"')
    return re.sub(r"the option '([^']*)'", r"\1", text)
