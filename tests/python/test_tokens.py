"""Token ids out of texts: files, Parquet, packed and remote ones."""

import gzip

import pytest

penstock = pytest.importorskip("penstock", reason="penstock is not installed")
fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
numpy = pytest.importorskip("numpy")

from penstock import tokens  # noqa: E402

TEXT = "In the beginning\nGod created the heaven  \n\nand the earth. É\r\n" * 40


class Bytes:
    """A tokeniser with the interface of the package tokenizers: bytes, and one separator."""

    def __init__(self, size=257):
        self.size = size

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return type("Encoding", (), {"ids": list(text.encode())})

    def token_to_id(self, token):
        return {"<end>": self.size - 1}.get(token)

    def get_vocab_size(self):
        return self.size


def written(folder):
    """The ids of all files, in the order of their names."""
    return numpy.concatenate([numpy.load(path) for path in sorted(folder.iterdir())])


def test_files_in_shards(tmp_path, monkeypatch):
    """Texts, packed and not, in pieces far shorter than the texts; and a store that is not the disk."""
    monkeypatch.setattr(tokens, "_PIECE", 100)
    source, folder = tmp_path / "texts", tmp_path / "ids"
    source.mkdir()
    (source / "a.txt").write_bytes(TEXT.encode())
    (source / "b.txt.gz").write_bytes(gzip.compress(TEXT[:70].encode()))
    assert tokens.write_tokens(source, folder, Bytes(), separator="<end>", shard_tokens=1000) == 257
    expected = [*TEXT.encode(), 256, *TEXT[:70].encode(), 256]
    assert written(folder).tolist() == expected and written(folder).dtype == numpy.uint16
    assert [len(numpy.load(path)) for path in sorted(folder.iterdir())][:-1] == [1000] * (len(expected) // 1000)
    data = penstock.open_text(folder, vocabulary=257)
    assert data.training_steps + data.held_out_steps == len(expected) - 1  # the last one is a target

    store = fsspec.filesystem("memory")
    store.pipe("/texts/one.txt", TEXT.encode())
    try:
        tokens.write_tokens("memory://texts/*.txt", tmp_path / "remote", Bytes(70000))
    finally:
        store.rm("/texts", recursive=True)
    assert written(tmp_path / "remote").tolist() == list(TEXT.encode())
    assert written(tmp_path / "remote").dtype == numpy.uint32


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"story": ["one", None, "two"], "n": [1, 2, 3]}), tmp_path / "a.parquet")
    tokens.write_tokens([tmp_path / "*.parquet"], tmp_path / "ids", Bytes(), column="story", separator="<end>")
    assert written(tmp_path / "ids").tolist() == [*b"one", 256, 256, *b"two", 256]
    for column, words in (("text", "has no column text, but story, n"), ("n", "values of type int64")):
        with pytest.raises(penstock.BadInput, match=words):
            tokens.write_tokens(tmp_path / "a.parquet", tmp_path / column, Bytes(), column=column)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(penstock.BadInput, match="cannot be read as Parquet"):
        tokens.write_tokens(tmp_path / "b.parquet", tmp_path / "b", Bytes())


def test_a_tokeniser_of_hugging_face(tmp_path):
    """Decoded tokens are the text."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    size = tokens.write_tokens(tmp_path / "a.txt", tmp_path / "ids", tmp_path / "tokenizer.json")
    assert size == made.get_vocab_size() and made.decode(written(tmp_path / "ids").tolist()) == TEXT
    with pytest.raises(penstock.IoFailure, match="cannot be read as a tokeniser"):
        tokens.write_tokens(tmp_path / "a.txt", tmp_path / "other", tmp_path / "a.txt")


def test_refusals(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe not UTF-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"text" * 100)[:-20])
    (tmp_path / "ids").mkdir()
    (tmp_path / "ids" / "tokens-000000.npy").touch()
    cases = [
        (penstock.BadInput, "a.txt is not UTF-8", "a.txt", "new", {}),
        (penstock.IoFailure, "b.txt.gz: ", "b.txt.gz", "new", {}),
        (penstock.IoFailure, "none: no such file", "none", "new", {}),
        (penstock.IoFailure, "rotocol", "nowhere://x", "new", {}),
        (penstock.InvalidArgument, "tokens-000000.npy already", "a.txt", "ids", {}),
        (penstock.InvalidArgument, "separator '<x>' is not a token", "a.txt", "new", {"separator": "<x>"}),
        (penstock.InvalidArgument, "shard_tokens must be at least 1, not 0", "a.txt", "new", {"shard_tokens": 0}),
    ]
    for kind, words, source, folder, options in cases:
        given = source if "://" in source else tmp_path / source
        with pytest.raises(kind, match=words):
            tokens.write_tokens(given, tmp_path / folder, Bytes(), **options)
