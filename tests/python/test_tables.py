"""Tables in memory, by the Arrow PyCapsule interface."""

import datetime
import decimal

import numpy as np
import penstock
import pytest

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

ROWS = 120
START = datetime.datetime(2024, 1, 1)


def texts_of(table, column):
    """The different texts of a column, as the categories that it makes."""
    rows = pyarrow.concat_tables([table] * ROWS)
    level = pyarrow.array(np.random.default_rng(0).normal(size=len(rows)))
    data = penstock.open_series(rows.append_column("level of all", level), inputs=["level of all"], categories=[column])
    return [each["category"] for each in data.description["inputs"] if each["name"] == column]


def hours():
    return [START + datetime.timedelta(hours=i) for i in range(ROWS)]


def columns():
    steps = np.arange(ROWS)
    return {
        "when": hours(),
        "level": np.sin(steps / 5) + steps / 100,
        "flow": steps % 7,
        "open": steps % 3 == 0,
        "pump": [["north", "south"][step % 2] for step in steps],
    }


def written(tmp_path):
    """The same columns as a person would write them."""
    lines = [",".join(columns())]
    for when, level, flow, is_open, pump in zip(*columns().values()):
        lines.append(f"{when:%Y-%m-%dT%H:%M:%S},{float(level)!r},{flow},{str(bool(is_open)).lower()},{pump}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def frames():
    own = columns()
    categories = pandas.DataFrame(own).astype({"pump": "category"})
    return {
        "pandas": pandas.DataFrame(own),
        "pandas categories": categories,
        "polars": polars.DataFrame(own),
        "polars categories": polars.DataFrame(own).with_columns(polars.col("pump").cast(polars.Categorical)),
        "pyarrow": pyarrow.table(own),
        "pyarrow in chunks": pyarrow.concat_tables([pyarrow.table(own).slice(0, 50), pyarrow.table(own).slice(50)]),
        "pyarrow batches": pyarrow.RecordBatchReader.from_batches(
            pyarrow.table(own).schema, pyarrow.table(own).to_batches(max_chunksize=7)
        ),
    }


@pytest.mark.parametrize("kind", frames())
def test_tables_are_what_their_file_is(kind, tmp_path):
    options = {"inputs": ["level", "flow", "open"], "targets": ["level"], "horizon": 3, "group": "pump"}
    from_file = penstock.open_series(written(tmp_path), **options)
    from_table = penstock.open_series(frames()[kind], **options)
    assert from_table.description == from_file.description
    assert from_table.reading == from_file.reading
    results = []
    for data in (from_file, from_table):
        model = penstock.Model(data, cell="mingru", width=8, seed=1)
        results.append(penstock.train(model, data, steps=5, batch=2, length=10, progress=False, threads=1).validation)
    assert results[0] == results[1]


def test_every_type():
    when = datetime.datetime(1969, 12, 31, 23, 59, 59, 250000)
    zone = datetime.timezone.utc
    arrays = {
        "i8": pyarrow.array([-128, None, 127], pyarrow.int8()),
        "u8": pyarrow.array([255, 0, None], pyarrow.uint8()),
        "i16": pyarrow.array([-32768, 1, 2], pyarrow.int16()),
        "u16": pyarrow.array([65535, 1, 2], pyarrow.uint16()),
        "i32": pyarrow.array([-(2**31), 1, 2], pyarrow.int32()),
        "u32": pyarrow.array([2**32 - 1, 1, 2], pyarrow.uint32()),
        "i64": pyarrow.array([-(2**63), 1, 2], pyarrow.int64()),
        "u64": pyarrow.array([2**64 - 1, 1, 2], pyarrow.uint64()),
        "f16": pyarrow.array(np.array([0.5, -2.0**-24, 65504.0], np.float16)),
        "f32": pyarrow.array([0.1, float("nan"), None], pyarrow.float32()),
        "f64": pyarrow.array([0.1, 1e300, -1 / 3]),
        "d": pyarrow.array([decimal.Decimal("-0.05"), decimal.Decimal("123.45"), None], pyarrow.decimal128(10, 2)),
        "d64": pyarrow.array([decimal.Decimal("-0.05"), decimal.Decimal("123.45"), None], pyarrow.decimal64(10, 2)),
        "b": pyarrow.array([True, None, False]),
        "text": pyarrow.array(['a "b", c', "two\nlines", ""]),
        "large": pyarrow.array(["x", None, "z"], pyarrow.large_string()),
        "view": pyarrow.array(["short", "longer than twelve bytes", None], pyarrow.string_view()),
        "word": pyarrow.array(["x", None, "x"]).dictionary_encode(),
        "day": pyarrow.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]),
        "day64": pyarrow.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None], pyarrow.date64()),
        "s": pyarrow.array([datetime.datetime(2024, 1, 1), None, datetime.datetime(2024, 1, 1, 13)], pyarrow.timestamp("s")),
        "us": pyarrow.array([when, None, None], pyarrow.timestamp("us")),
        "ns": pyarrow.array([1, None, None], pyarrow.timestamp("ns")),
        "zone": pyarrow.array([datetime.datetime(2024, 1, 1, tzinfo=zone), None, None], pyarrow.timestamp("s", "Asia/Tokyo")),
        "null": pyarrow.nulls(3),
    }
    expected = {
        "i8": ["-128", "127"],
        "u8": ["255", "0"],
        "i16": ["-32768", "1", "2"],
        "u16": ["65535", "1", "2"],
        "i32": ["-2147483648", "1", "2"],
        "u32": ["4294967295", "1", "2"],
        "i64": ["-9223372036854775808", "1", "2"],
        "u64": ["18446744073709551615", "1", "2"],
        "f16": ["0.5", "-5.960464477539063e-08", "65504"],
        "f32": ["0.10000000149011612"],
        "f64": ["0.1", "1e+300", "-0.3333333333333333"],
        "d": ["-0.05", "123.45"],
        "d64": ["-0.05", "123.45"],
        "b": ["true", "false"],
        "text": ['a "b", c', "two lines"],
        "large": ["x", "z"],
        "view": ["short", "longer than twelve bytes"],
        "word": ["x"],
        "day": ["1969-12-31", "2024-02-29"],
        "day64": ["1969-12-31", "2024-02-29"],
        "s": ["2024-01-01", "2024-01-01T13:00:00"],
        "us": ["1969-12-31T23:59:59.250000000"],
        "ns": ["1970-01-01T00:00:00.000000001"],
        "zone": ["2024-01-01T00:00:00Z"],
    }
    table = pyarrow.table(arrays)
    assert {name: texts_of(table, name) for name in expected} == expected
    for name, text in {"i8": "127", "f64": "-0.3333333333333333", "b": "false", "word": "x"}.items():
        assert texts_of(table.slice(2), name) == [text], "slices begin behind the start of buffers"
    with pytest.raises(penstock.BadInput, match='column "null" has no values'):
        texts_of(table, "null")


def test_indices_of_pandas():
    frame = pandas.DataFrame({"level": np.arange(ROWS) ** 2 % 17}, index=np.arange(ROWS)[::-1])
    undated = "no column says when a row was: each row is read as the step behind the row before"
    assert penstock.open_series(frame).reading == ["1 column read, 1 left out: column1 (no name)", undated]
    dates = pandas.DataFrame({"level": np.sin(np.arange(ROWS))}, index=pandas.DatetimeIndex(hours()))
    data = penstock.open_series(dates, horizon=2)
    assert [column["name"] for column in data.description["targets"]] == ["level"]
    assert any("a row an hour" in line for line in data.reading)
    named = dates.rename_axis("time")
    assert any("time: a row an hour" in line for line in penstock.open_series(named, horizon=2).reading)


def test_names_that_look_like_numbers_are_names():
    values = np.random.default_rng(0).normal(size=(60, 2))
    for names in [None, ["2020", "2021"], [2020, 2021], ["1.5", "2.5"], ["2020-01-01", "2021-01-01"]]:
        table = pandas.DataFrame(values, columns=names)
        data = penstock.open_series(table)
        assert [column["name"] for column in data.description["inputs"]] == [str(name) for name in table.columns]
        assert data.training_steps + data.held_out_steps + 1 == 60
        mean = data.description["inputs"][0]["mean"]
        assert mean == pytest.approx(values[:48, 0].mean(), rel=1e-12)
        model = penstock.Model(data, width=8, blocks=1)
        assert model.predict(table).shape[0] == 60
    named = pandas.DataFrame(values, columns=["2020", "2021"])
    labels = named.assign(sequence=np.arange(60) // 6, label=["a", "b"] * 30).astype({"sequence": str})
    labels["label"] = np.where(np.arange(60) // 6 % 2, "a", "b")
    assert [column["name"] for column in penstock.open_labelled(labels).description["inputs"]] == ["2020", "2021"]


def test_names_that_look_like_numbers_of_json_lines(tmp_path):
    path = tmp_path / "years.jsonl"
    path.write_text("".join(f'{{"2020": {i * i % 17}, "2021": {i * i % 13}}}\n' for i in range(60)))
    data = penstock.open_series(path)
    assert [column["name"] for column in data.description["inputs"]] == ["2020", "2021"]
    assert data.training_steps + data.held_out_steps + 1 == 60


def test_a_model_of_columns_without_names_reads_tables_by_place(tmp_path):
    values = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    path = tmp_path / "plain.csv"
    np.savetxt(path, values, delimiter=",", fmt="%.3f")
    data = penstock.open_series(path, header=False)
    model = penstock.Model(data, width=8, blocks=1)
    np.testing.assert_array_equal(model.predict(pandas.DataFrame(values)), model.predict(path))


def test_dates_that_cannot_be_read():
    table = pandas.DataFrame({"when": pandas.date_range("2023-01-01", periods=100), "x": np.arange(100) ** 2 % 17})
    broken = table.copy()
    broken.loc[50, "when"] = pandas.NaT
    with pytest.raises(penstock.BadInput, match='the table:52: column "when": "" is no date'):
        penstock.open_series(broken)
    data = penstock.open_series(broken, undated="drop")
    assert any("1 row without a readable date" in finding for finding in data.reading)
    model = penstock.Model(data, width=8, blocks=1)
    with pytest.warns(UserWarning, match="1 row without a readable date left out"):
        forecasts = model.predict(broken)
    np.testing.assert_array_equal(forecasts, model.predict(table.drop(index=50)))
    with pytest.raises(penstock.InvalidArgument, match="undated must be one of refuse, drop"):
        penstock.open_series(broken, undated="ignore")


def test_what_is_unlike_the_training_data_is_named():
    table = pandas.DataFrame({"when": hours(), "pump": columns()["pump"], "level": columns()["level"]})
    model = penstock.Model(penstock.open_series(table, horizon=2), width=8, blocks=1)
    unknown, halves = table.replace("south", "west"), pandas.concat([table[60:], table[:60]])
    for call in (model.predict, model.evaluate):
        with pytest.warns(UserWarning, match="60 fields have a category that is not in the training part"):
            call(unknown)
        with pytest.warns(UserWarning, match="1 row is earlier than the one before: sort the rows from old to new"):
            call(halves)


def test_missing_values():
    level = np.sin(np.arange(ROWS))
    frame = pandas.DataFrame({"level": np.where(level > 0.9, np.nan, level)})
    with pytest.raises(penstock.BadInput, match="the table:4:1: column .level.: the value is missing"):
        penstock.open_series(frame)
    assert "missing values" in " ".join(penstock.open_series(frame, missing="carry").reading)
    with pytest.raises(penstock.BadInput, match="not a finite number"):
        penstock.open_series(pandas.DataFrame({"level": [1.0, np.inf] * 50}))


def test_several_tables_are_series_of_their_own(tmp_path):
    frame = pandas.DataFrame(columns())
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, part in zip(paths, (frame[:60], frame[60:])):
        part.to_csv(path, index=False)
    tables = penstock.open_series([frame[:60], frame[60:].reset_index(drop=True)], inputs=["level"])
    assert tables.description == penstock.open_series(paths, inputs=["level"]).description


def test_labelled_tables(tmp_path):
    rows = [(f"s{i}", "up" if i % 2 else "down", (t if i % 2 else -t) + 0.1 * i) for i in range(20) for t in range(8)]
    frame = polars.DataFrame(rows, schema=["sequence", "label", "x"], orient="row")
    frame.write_csv(tmp_path / "labelled.csv")
    data = penstock.open_labelled(frame)
    assert data.description == penstock.open_labelled(tmp_path / "labelled.csv").description
    model = penstock.Model(data)
    with pytest.warns(UserWarning, match="filters stand alone"):
        assert penstock.train(model, data, progress=False).validation.accuracy == 1.0
    again = penstock.open_labelled(frame, origin=model)
    assert again.description["classes"] == data.description["classes"]


def test_categories(tmp_path):
    """A column of pandas' categories, or of a dictionary, is what its text in a file is."""
    days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    frame = pandas.DataFrame({"v": [float(i * i % 17) for i in range(140)], "day": [days[i % 7] for i in range(140)]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    of_file = penstock.open_series(tmp_path / "t.csv", known=["day"], horizon=2)
    frame["day"] = frame["day"].astype("category")
    of_table = penstock.open_series(frame, known=["day"], horizon=2)
    assert of_table.description == of_file.description and of_table._dataset.position() == of_file._dataset.position()
    inputs = of_table.description["inputs"]
    assert [column["category"] for column in inputs[1:8]] == days
    assert penstock.open_series(frame, categories="none").description["inputs"] == inputs[:1]
    stores = penstock.open_series(frame.assign(store=[i % 3 for i in range(140)]), categories=["store"])
    assert [column["category"] for column in stores.description["inputs"][8:]] == ["0", "1", "2"]
    model = penstock.Model(of_table, width=4, blocks=1)
    penstock.train(model, of_table, steps=2, progress=False)
    forecasts = model.predict(frame)
    model.save(tmp_path / "m.safetensors")
    assert np.array_equal(penstock.Model.load(tmp_path / "m.safetensors").predict(tmp_path / "t.csv"), forecasts, equal_nan=True)
    with pytest.warns(UserWarning, match=r'140 fields have a category .* column "day": "Day"'):
        model.predict(frame.assign(day="Day"))
    with pytest.raises(penstock.errors.InvalidArgument, match="the model reads texts of the column day: give it a table"):
        model.predict(np.zeros((5, 2)))


def test_refusals():
    refused = pyarrow.table({"level": [1.0], "parts": [[1, 2]]})
    with pytest.raises(penstock.BadInput, match=r'column "parts" is of Arrow\'s type "\+l"; columns can be numbers'):
        penstock.open_series(refused)
    with pytest.raises(penstock.BadInput, match='this is one column of Arrow\'s type "g", not a table'):
        penstock.open_series(pyarrow.chunked_array([[1.0, 2.0]]))
    with pytest.raises(penstock.BadInput, match=r"series.to_frame\('NAME'\) of pandas, .* makes a table of a series$"):
        penstock.open_series(pandas.Series([1.0, 2.0]))
    with pytest.raises(penstock.BadInput, match="the table has no columns"):
        penstock.open_series(pyarrow.table({}))
    with pytest.raises(penstock.InvalidArgument, match='has no column "depth", only "level"'):
        penstock.open_series(pyarrow.table({"level": [1.0, 2.0]}), inputs=["depth"])

    def fails():
        yield pyarrow.record_batch({"level": [1.0]})
        raise OSError("the disk is gone")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"level": pyarrow.float64()}), fails())
    with pytest.raises(penstock.BadInput, match="the table cannot be read: .*the disk is gone"):
        penstock.open_series(reader)

    twice = pyarrow.table({"level": [1.0, 2.0, 3.0]})
    with pytest.raises(penstock.BadInput, match="table 3: the same as table 1, so all it holds would count twice"):
        penstock.open_series([twice, pyarrow.table({"level": [4.0, 5.0]}), twice])

    class Old:
        def __dataframe__(self):
            raise AssertionError("nobody asks")

    with pytest.raises(penstock.InvalidArgument, match="has no __arrow_c_stream__: a newer version has"):
        penstock.open_series(Old())


def test_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    frame = pandas.DataFrame(columns())
    frame.to_parquet(path)
    options = {"inputs": ["level"], "targets": ["level"]}
    data = penstock.open_series(polars.read_parquet(path), **options)
    assert data.description == penstock.open_series(frame, **options).description
