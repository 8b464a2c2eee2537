"""Model cards: README.md with the front matter that the Hugging Face Hub reads, from what training noted."""

from __future__ import annotations

import json
import math
import os
import re

from .errors import InvalidArgument, IoFailure

_MARKER = "<!-- Written by Penstock, which replaces this file while this line is in it. -->"
_PIPELINES = {
    "series": "time-series-forecasting",
    "sound": "audio-to-audio",
    "text": "text-generation",
    "texts": "text-classification",
}
_METRICS = {
    "rmse": "RMSE",
    "mae": "MAE",
    "mase": "MASE",
    "smape": "sMAPE",
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "bits_per_byte": "bits per byte",
}
_NOTES = {
    "trained": "trained",
    "steps": "optimiser steps",
    "origin": "started from",
    "weight": "weight of the layers",
    "score": "validation",
}
_HUB_METRICS = {"macro_f1": "f1"}  # where the Hub's name is another one
_GIVEN = ("license", "language", "datasets", "tags", "description")  # what the caller may say


def is_own_card(path):
    """Returns True for a card that still has the marker."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _MARKER in file.read()
    except OSError as error:
        raise IoFailure(f"cannot read '{path}': {error.strerror}") from error


def checked_options(given):
    """Returns what the caller says for a card, with lists in place of what is missing."""
    unknown = sorted(given.keys() - set(_GIVEN))
    if unknown:
        raise InvalidArgument(f"model_card_kwargs must have the names {', '.join(_GIVEN)}, not '{unknown[0]}'")
    lists = {name: given.get(name) or [] for name in ("datasets", "tags")}
    for name, value in lists.items():
        if not isinstance(value, (list, tuple)):
            raise InvalidArgument(f"model_card_kwargs: {name} must be a list, not {value!r}")
    return {**given, **{name: list(value) for name, value in lists.items()}}


def _source(training):
    """Returns the name of the data without folders, which are those of one machine."""
    return os.path.basename(str(training.get("data", "")).partition(": ")[0])


def _kind(data):
    if data["task"] == "language":
        return "text"
    if data["task"] == "classify":
        return "texts" if "texts" in data else "sequences"
    return "sound" if data.get("sample_rate") else "series"


def _yaml(value, indent=0):
    """Returns a value as YAML in lines. Scalars are in JSON's notation, which YAML includes."""
    start = " " * indent
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each not in (None, [], {})}
        return "".join(f"{start}{name}:{_nested(each, indent)}" for name, each in value.items())
    return "".join(f"{start}- {_yaml(each, indent + 2).lstrip(' ') if isinstance(each, dict) else _scalar(each)}" for each in value)


def _nested(value, indent):
    if isinstance(value, dict):
        return "\n" + _yaml(value, indent + 2)
    return "\n" + _yaml(value, indent) if isinstance(value, list) else " " + _scalar(value)


def _scalar(value):
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value + "\n"
    # YAML has no pairs of surrogates, and no characters that cannot be printed.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else rf"\U{ord(c):08x}" for c in text) + "\n"


_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}  # not strings in YAML


def _code(text):
    """Returns a text of a file as code in Markdown, also within a table."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)).replace("|", r"\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"`{text}`"


def _names(columns, most=20):
    names = list(dict.fromkeys(column["name"] for column in columns))
    return ", ".join(map(_code, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def _number(value):
    return f"{value:.4g}" if isinstance(value, (int, float)) and math.isfinite(value) else "-"


def _metrics_of(values):
    """Returns the metrics in scores of a file, which may hold anything."""
    known = _METRICS.keys() & values.keys() if isinstance(values, dict) else ()
    return {name: values[name] for name in _METRICS if name in known and _number(values[name]) != "-"}


def _results(scores):
    """Returns (column or "", {metric: value}, {baseline: {metric: value}}, remark) for each scored column."""
    if isinstance(scores.get("columns"), dict):
        found = [(name, score, score.get("rivals")) for name, score in scores["columns"].items() if isinstance(score, dict)]
    else:
        baselines = {name: {"bits_per_byte": bits} for name, bits in dict(scores.get("compressors") or {}).items()}
        if "majority_accuracy" in scores:
            baselines = {"the most frequent label": {"accuracy": scores["majority_accuracy"]}}
        found = [("", scores, baselines)]
    results = []
    for name, score, baselines in found:
        rivals = {other: _metrics_of(values) for other, values in (baselines or {}).items()}
        if _metrics_of(score):
            results.append((name, _metrics_of(score), rivals, _coverage(score.get("quantiles"))))
    return results


def _coverage(quantiles):
    if not quantiles:
        return ""
    low, high = quantiles["levels"][0], quantiles["levels"][-1]
    return f"{100 * quantiles['coverage']:.0f} % of the values lie between the quantiles {low} and {high}.\n\n"


def _score_tables(results):
    text = ""
    for name, metrics, baselines, remark in results:
        rows = [["**this model**", *(f"**{_number(value)}**" for value in metrics.values())]]
        rows += [[_code(other), *(_number(values.get(metric)) for metric in metrics)] for other, values in baselines.items()]
        text += _table([_code(name) if name else "held-out data", *map(_METRICS.get, metrics)], rows) + "\n" + remark
    return text


def _model_index(name, kind, source, results):
    metrics = [
        {"type": _HUB_METRICS.get(metric, metric), "value": value, "name": _METRICS[metric] + (f" of {column}" if column else "")}
        for column, values, *_ in results
        for metric, value in values.items()
    ]
    if not metrics:
        return None
    dataset = {"name": source or kind, "type": kind, "split": "held out"}
    return [{"name": name, "results": [{"task": {"type": _PIPELINES.get(kind, "other")}, "dataset": dataset, "metrics": metrics}]}]


def _use(config, kind, name, source):
    """Returns three lines of Python, and what the last one prints."""
    data, file = config["data"], json.dumps(source if re.fullmatch(r"\S+\.\w+", source) else "data.csv", ensure_ascii=False)
    if kind == "text":
        last = 'print(model.generate("In the ", 200).decode(errors="replace"))'
    elif kind == "texts":
        last = 'print(model.predict("a text"))  # the probability of each class'
    elif data["vocabulary"]:
        last = "print(model.predict([0] * 8))  # tokens"
    elif kind == "sound":
        last = f"print(model.predict([[0.0]] * 1000))  # samples at {data['sample_rate']} Hz"
    elif kind == "sequences":
        last = f"print(model.predict({file}))  # the probability of each class, of every sequence"
    else:
        values = "{name: rows[-1] for name, rows in model.predict(FILE).items()}" if "groups" in data else "model.predict(FILE)[-1]"
        last = f"print({values.replace('FILE', file)})  # after the last row: [horizon, columns]"
    return f"import penstock\nmodel = penstock.Model.from_pretrained({json.dumps(name, ensure_ascii=False)})\n{last}\n"


def _about(config, kind):
    data = config["data"]
    if kind == "text":
        return "It predicts the next byte of a text and generates texts."
    if kind in ("texts", "sequences"):
        what = f"texts of the column {_code(data['texts']['column'])}" if kind == "texts" else "sequences"
        return f"It labels {what} as {', '.join(map(_code, data['classes'][:20]))}{', ...' if len(data['classes']) > 20 else ''}."
    if kind == "sound":
        return f"It turns one sound into another, sample by sample, at {data['sample_rate']} Hz."
    if not data["targets"]:
        return "It predicts tokens."
    ahead = "1 row" if data["horizon"] == 1 else f"1 to {data['horizon']} rows"
    many = f" It knows {len(data['groups']['series'])} series." if "groups" in data else ""
    return f"It forecasts {_names(data['targets'])}, {ahead} ahead.{many}"


def _data_rows(config, kind, training):
    data = config["data"]
    source, summary = _source(training), training.get("data", "").partition(": ")[2]
    rows = [["kind", kind]]
    rows += [["source", _code(source)]] if source else []
    rows += [["summary", _code(summary)]] if summary else []
    rows += [["reads", _names(data["inputs"])]] if data["inputs"] else []
    return rows + ([["predicts", _names(data["targets"])]] if data["targets"] else [])


def _training_rows(config, training):
    model = config["model"]
    layers = f"{model['blocks']} x {model['cell']} of width {model['width']}" if model["blocks"] else "none"
    rows = [["layers", _code(layers)], ["parameters", f"{config['parameters']:,}"]]
    if model.get("members", 1) > 1:
        rows.append(["members of the ensemble", model["members"]])
    if model.get("lags"):
        rows.append(["linear forecast", f"from {model['lags']} rows"])
    if model.get("filters"):
        rows.append(["convolution filters", f"{model['filters'] * model['dilations']:,}"])
    rows += [[title, _code(training[name])] for name, title in _NOTES.items() if training.get(name) not in (None, "")]
    rows += [[name, _code(value)] for name, value in sorted(training.get("options", {}).items())]
    return [*rows, ["Penstock", training.get("version") or config["penstock_version"]]]


def _front_matter(config, kind, name, source, results, given):
    used = {metric for _, metrics, *_ in results for metric in metrics}
    tags = ["penstock", "recurrent-neural-network", *([config["model"]["cell"]] if config["model"]["blocks"] else []), kind]
    return {
        "library_name": "penstock",
        "pipeline_tag": _PIPELINES.get(kind),
        "license": given.get("license"),
        "language": given.get("language"),
        "datasets": given.get("datasets"),
        "tags": [*tags, *given["tags"]],
        "metrics": sorted(_HUB_METRICS.get(metric, metric) for metric in used),
        "model-index": _model_index(name, kind, source, results),
    }


def card_text(config, name, given):
    """Returns the model card of a model.

    Args:
        config: The content of its ``config.json``.
        name: Its name: a repository, or a folder.
        given: What training does not know, as :func:`checked_options` returns it.
    """
    training = config["training"]
    source, kind = _source(training), _kind(config["data"])
    results = _results(training.get("scores", {}))
    parts = [
        f"---\n{_yaml(_front_matter(config, kind, name, source, results, given))}---\n{_MARKER}\n",
        f"# {_code(name)}\n",
        f"A recurrent network of Penstock. {_about(config, kind)}\n",
        f"{given['description']}\n" if given.get("description") else "",
        f"## Use\n\n```python\n{_use(config, kind, name, source)}```\n",
        f"## Scores\n\nOn data that training did not see:\n\n{_score_tables(results).rstrip()}\n" if results else "",
        f"## Data\n\n{_table(['', ''], _data_rows(config, kind, training))}",
        f"## Training\n\n{_table(['', ''], _training_rows(config, training))}",
    ]
    return "\n".join(filter(None, parts))
