"""TensorBoard's events of `penstock train`, read by a reader of our own."""

import json
import struct

import pytest


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def fields(message):
    """(number, value) of a protocol buffer's fields."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}[kind] if kind != 2 else varint()
        yield key >> 3, message[at : at + size]
        at += size


def scalars(path):
    data, at, found = path.read_bytes(), 0, {}
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + size]
        (checksum,) = struct.unpack_from("<I", data, at + 12 + size)
        crc = crc32c(event)
        assert checksum == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        content = dict(fields(event))
        for _, value in fields(content.get(5, b"")):
            entry = dict(fields(value))
            found.setdefault(entry[1].decode(), []).append((content.get(2, 0), struct.unpack("<f", entry[2])[0]))
        at += 16 + size
    return found


def test_events_say_what_the_metrics_say(runs):
    (path,) = (runs / "events" / "labelled").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    found = scalars(path)
    records = [json.loads(line) for line in (runs / "labelled.jsonl").read_text().splitlines()]
    for kind, field, name in [("train", "loss", "loss/train"), ("train", "gradient_norm", "optimizer/gradient_norm"),
                              ("validation", "loss", "loss/validation"),
                              ("validation", "accuracy", "accuracy/validation")]:  # fmt: skip
        expected = [(record["step"], record[field]) for record in records if record["kind"] == kind]
        assert [step for step, _ in found[name]] == [step for step, _ in expected]
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in expected], rel=1e-6)
