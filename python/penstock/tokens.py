"""Token ids out of texts by a tokeniser, as files that :func:`penstock.open_text` reads and every trainer samples from.

The texts may be files, Parquet, compressed or on a remote store. They pass through memory piece by piece. The packages
that read them (fsspec, PyArrow, tokenizers) are imported when they are needed.
"""

from __future__ import annotations

import os
import re

from .errors import BadInput, InvalidArgument, IoFailure

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .datasets import Path

_PIECE = 1 << 20  # characters that are encoded at once
_ROWS = 1024  # of a batch of Parquet


def write_tokens(
    source: Path | Sequence[Path],
    folder: Path,
    tokenizer: Any,
    *,
    column: str = "text",
    separator: str | None = None,
    shard_tokens: int = 1 << 26,
) -> int:
    """Encodes texts as token ids and writes them to ``folder`` as ``tokens-000000.npy`` and so on.

    Files are read in the order of their names. A file of text is one document, and so is a row of Parquet. Long texts are
    encoded in pieces of about a megabyte that end with a line, so decoding the tokens gives the texts.

    Args:
        source: Files, folders or patterns, local or of a store that fsspec knows (``"s3://bucket/*.parquet"``). Names
            that end in .parquet are Parquet, all others UTF-8, which fsspec unpacks by name (.gz, .bz2, .xz).
        folder: A local folder without ``tokens-*.npy``. It is made if it does not exist.
        tokenizer: A ``tokenizer.json`` of Hugging Face, or a ``tokenizers.Tokenizer``.
        column: The column of Parquet files with texts.
        separator: A token to write after each document, such as ``"<|endoftext|>"``. None: none.
        shard_tokens: Tokens of a file; so many stay in memory.

    Returns:
        The size of the vocabulary, for ``open_text(folder, vocabulary=...)``.

    Raises:
        InvalidArgument: The separator is no token, the folder has tokens already, or ``shard_tokens`` is below 1.
        IoFailure: There is no such source or tokeniser, or a file cannot be read or written.
        BadInput: A file is not UTF-8, or a Parquet file has no such column of texts.
        ImportError: A package that the source needs is not installed.

    >>> size = penstock.tokens.write_tokens("books/*.txt.gz", "ids", "tokenizer.json")  # doctest: +SKIP
    >>> data = penstock.open_text("ids", vocabulary=size)  # doctest: +SKIP
    """
    encoder = _tokenizer(tokenizer)
    end = [] if separator is None else [encoder.token_to_id(separator)]
    if None in end:
        raise InvalidArgument(f"separator {separator!r} is not a token of the tokeniser: name one of its special tokens")
    if shard_tokens < 1:
        raise InvalidArgument(f"shard_tokens must be at least 1, not {shard_tokens}")
    size = encoder.get_vocab_size()
    shards = _Shards(os.fspath(folder), "uint16" if size <= 1 << 16 else "uint32", shard_tokens)
    for document in _documents(source, column):
        for piece in document:
            shards.add(encoder.encode(piece, add_special_tokens=False).ids)
        shards.add(end)
    shards.close()
    return size


def _tokenizer(given):
    if not isinstance(given, (str, os.PathLike)):
        return given
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(os.fspath(given))
    except Exception as error:  # which it raises as such
        raise IoFailure(f"{os.fspath(given)} cannot be read as a tokeniser of Hugging Face: {error}") from error


class _Shards:
    """Files of token ids, each written whole under its name."""

    def __init__(self, folder: str, dtype: str, tokens: int) -> None:
        import numpy

        self._folder, self._number, self._filled = folder, 0, 0
        try:
            os.makedirs(folder, exist_ok=True)
            found = [name for name in os.listdir(folder) if re.fullmatch(r"tokens-\d+\.npy", name)]
        except OSError as error:
            raise IoFailure(f"{folder}: {error.strerror}") from error
        if found:
            raise InvalidArgument(f"folder {folder} has {found[0]} already: name another one, or remove its tokens")
        self._room = numpy.empty(tokens, dtype)

    def add(self, ids: Sequence[int]) -> None:
        while len(ids) > 0:
            part = ids[: len(self._room) - self._filled]
            self._room[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            ids = ids[len(part) :]
            if self._filled == len(self._room):
                self.close()

    def close(self) -> None:
        """Writes what is there."""
        import numpy

        if self._filled == 0:
            return
        path = os.path.join(self._folder, f"tokens-{self._number:06d}.npy")
        try:
            with open(path + ".part", "wb") as file:
                numpy.save(file, self._room[: self._filled])
            os.replace(path + ".part", path)
        except OSError as error:
            raise IoFailure(f"{path}: {error.strerror}; make room, remove the folder and start again") from error
        self._number, self._filled = self._number + 1, 0


def _documents(source: Path | Sequence[Path], column: str) -> Iterator[Iterator[str]]:
    """Yields the documents of all sources, each as its pieces."""
    sources = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    for each in sources:
        try:
            import fsspec

            store, path = fsspec.core.url_to_fs(os.fspath(each))
            paths = sorted(store.find(path) if store.isdir(path) else store.glob(path))
        except (OSError, ValueError) as error:
            raise IoFailure(f"{os.fspath(each)}: {error}") from error
        if not paths:
            raise IoFailure(f"{os.fspath(each)}: no such file")
        for path in paths:
            if path.endswith(".parquet"):
                yield from _rows(store, path, column)
            else:
                yield _text(store, path)


def _text(store, path):
    """Yields a text in pieces that end with a line, where lines are not much longer than a piece."""
    try:
        with store.open(path, "rt", encoding="utf-8", newline="", compression="infer") as file:
            while piece := file.read(_PIECE):
                yield piece + file.readline(_PIECE)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8: {error}; convert it, or train on its bytes by penstock.open_text") from error
    except (OSError, EOFError) as error:
        raise IoFailure(f"{path}: {error}") from error


def _rows(store, path, column):
    """Yields the documents of a column of Parquet."""
    import pyarrow
    import pyarrow.dataset

    try:
        data = pyarrow.dataset.dataset(path, format="parquet", filesystem=store)
        if column not in data.schema.names:
            raise BadInput(f"{path} has no column {column}, but {', '.join(data.schema.names)}: give column=")
        kind = data.schema.field(column).type
        if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
            raise BadInput(f"column {column} of {path} has values of type {kind}: give a column of texts")
        for batch in data.to_batches(columns=[column], batch_size=_ROWS):
            for text in batch.column(0).to_pylist():
                yield iter([text] if text else [])
    except pyarrow.ArrowInvalid as error:
        raise BadInput(f"{path} cannot be read as Parquet: {error}") from error
    except OSError as error:
        raise IoFailure(f"{path}: {error}") from error
