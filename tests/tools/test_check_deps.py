"""tools/check_deps.py on small trees, each with one fault, which it must name."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import check_deps  # noqa: E402

CLEAN = {
    "include/penstock/types.h": '#pragma once\n#include <vector>\n',
    "include/penstock/model.h": '#include "penstock/types.h"\n',
    "src/core/base/check.h": '#include <fmt/format.h>\n#include "penstock/types.h"\n',
    "src/core/csp/search.h": '#include "base/check.h"\n#include "penstock/types.h"\n',
    "src/core/plan/rules.h": '#include "csp/search.h"\n',
    "src/core/cells/gate_functions.h": "",
    "src/core/cells/gru.h": "",
    "src/core/cells/list.h": '#include "cells/gru.h"\n',
    "src/core/backend/cpu/dense.cc": '#include <hwy/highway.h>\n#include "base/check.h"\n#include "cells/list.h"\n',
    "src/core/backend/cuda/kernels/scan/scan.cuh": '#include "cells/gru.h"\n',
    "src/core/nn/layer.h": '#include "base/check.h"\n',
    "src/core/io/file.cc": '#include <unistd.h>\n#include <nlohmann/json.hpp>\n#include "nn/layer.h"\n',
    "src/core/io/file.h": "",
    "src/fit/forecast/linear/arima.h": '#include "base/check.h"\n',
    "src/fit/data/dataset.h": '#include "forecast/linear/arima.h"\n#include "io/file.h"\n',
    "src/fit/data/table/csv.h": '#include "data/dataset.h"\n',
    "src/fit/data/series/rows.h": '#include "data/table/csv.h"\n',
    "src/fit/data/labelled/labels.h": "",
    "src/fit/forecast/fit.h": '#include "data/series/rows.h"\n',
    "src/fit/train/trainer.h": '#include "forecast/fit.h"\n#include "io/file.h"\n',
    "src/core/ops/op.h": "",
    "src/core/ops/cuda/common.h": '#include "ops/recurrence/recurrence.h"\n',
    "src/core/ops/pointwise/cast.h": "",
    "src/core/ops/pointwise/cast.cc": '#include "ops/cuda/common.h"\n#include "ops/op.h"\n#include "ops/pointwise/cast.h"\n',
    "src/core/ops/recurrence/recurrence.h": '#include "ops/pointwise/cast.h"\n',
    "src/core/stream/session.cc": '#include "nn/layer.h"\n',
    "oracle/cells.h": '#include "penstock/types.h"\n',
    "bench/suite.h": '#include "base/check.h"\n#include "oracle/cells.h"\n#include "penstock/model.h"\n',
    "bench/kernels/times.cc": '#include <fmt/format.h>\n#include "base/check.h"\n#include "bench/suite.h"\n',
    "apps/cli/main.cc": '#include <CLI/CLI.hpp>\n#include "bench/suite.h"\n#include "penstock/model.h"\n#include "verbs.h"\n',
    "apps/cli/verbs.h": "",
    "apps/cli/commands/train.cc": '#include "verbs.h"\n',
    "python/src/module.cc": '#include <nanobind/nanobind.h>\n#include "arrays.h"\n#include "penstock/model.h"\n',
    "python/src/arrays.h": "",
}


class CheckDeps(unittest.TestCase):
    def complaints(self, **changes):
        """What check_tree says about the clean tree with the texts of some files changed."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            for name, text in {**CLEAN, **changes}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_deps.check_tree(root)

    def check_refused(self, path, line, reason):
        found = self.complaints(**{path: line + "\n" + CLEAN.get(path, "")})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:1: "), found[0])
        self.assertIn(reason, found[0])

    def test_clean_tree_passes(self):
        self.assertEqual(self.complaints(), [])

    def test_upward_include(self):
        self.check_refused("src/core/base/check.h", '#include "nn/layer.h"', "base may not see nn")
        self.check_refused("src/core/nn/layer.h", '#  include "io/file.h"', "nn may not see io")

    def test_train_and_stream_do_not_see_each_other(self):
        self.check_refused("src/core/stream/session.cc", '#include "train/trainer.h"', "stream may not see train")
        self.check_refused("src/core/stream/session.cc", '#include "io/file.h"', "stream may not see io")

    def test_only_data_and_what_is_above_see_its_public_headers(self):
        for header in ("data.h", "data/series.h", "train/guard.h", "forecast/score.h", "classify/labels.h", "penstock.h"):
            line = f'#include "penstock/{header}"'
            self.check_refused("src/core/nn/layer.h", line, "nn is below data or beside it")
            self.check_refused("src/core/stream/session.cc", line, "stream is below data or beside it")
            self.check_refused("src/fit/forecast/linear/arima.h", line, "forecast/linear is below data or beside it")
            for path in ("src/fit/data/dataset.h", "src/fit/forecast/fit.h", "src/fit/train/trainer.h", "apps/cli/main.cc"):
                self.assertEqual(self.complaints(**{path: line + "\n"}), [])

    def test_models_see_what_they_need_of_data(self):
        for header in ("data_description.h", "description/column.h"):
            line = f'#include "penstock/{header}"'
            for path in ("src/core/nn/layer.h", "src/core/io/file.h", "src/core/stream/session.cc", "src/fit/data/dataset.h"):
                self.assertEqual(self.complaints(**{path: line + "\n" + CLEAN[path]}), [])
            self.check_refused("src/core/ops/op.h", line, "ops is below nn or beside it")
            self.check_refused("src/fit/forecast/linear/arima.h", line, "forecast/linear is below nn or beside it")

    def test_linear_forecasts_know_numbers_only(self):
        self.check_refused("src/fit/forecast/linear/arima.h", '#include "data/dataset.h"', "forecast/linear may not see data")
        self.check_refused("src/fit/forecast/fit.h", '#include "train/trainer.h"', "forecast may not see train")
        self.check_refused("src/fit/data/dataset.h", '#include "forecast/fit.h"', "data may not see forecast")

    def test_rooms_have_an_order_too(self):
        self.check_refused("src/fit/data/dataset.h", '#include "data/table/csv.h"', "data/ may not see data/table")
        self.check_refused("src/fit/data/labelled/labels.h", '#include "data/series/rows.h"', "data/labelled may not see data/series")
        self.check_refused("src/core/ops/pointwise/cast.h", '#include "ops/recurrence/recurrence.h"',
                           "ops/pointwise may not see ops/recurrence")
        found = self.complaints(**{"src/core/ops/extra/new.cc": ""})
        self.assertEqual(found, ["src/core/ops/extra/new.cc: src/core/ops/extra is not a room that tools/check_deps.py knows"])

    def test_the_solver_knows_nothing_of_plans(self):
        self.check_refused("src/core/csp/search.h", '#include "plan/rules.h"', "csp may not see plan")
        self.check_refused("src/core/csp/search.h", '#include "cells/list.h"', "csp may not see cells")

    def test_cells_and_kernels_include_nothing_else(self):
        self.check_refused("src/core/cells/gru.h", "#include <cmath>", "a cell header goes through every compiler")
        self.check_refused("src/core/cells/gru.h", '#include "base/check.h"', "a cell header goes through every compiler")
        self.check_refused("src/core/backend/cuda/kernels/scan/scan.cuh", '#include "base/check.h"', "a kernel header goes")

    def test_public_headers_stand_alone(self):
        for line in ("#include <fmt/format.h>", '#include "base/check.h"', "#include <unistd.h>"):
            self.check_refused("include/penstock/types.h", line, "public headers see the standard library")

    def test_programs_see_public_headers_only(self):
        self.check_refused("apps/cli/main.cc", '#include "base/check.h"', "apps sees public headers only")
        self.check_refused("python/src/module.cc", '#include "base/check.h"', "python sees public headers only")
        self.check_refused("bench/suite.h", '#include "nn/layer.h"', "bench sees public headers only")

    def test_the_oracle_knows_nobody_and_only_benchmarks_know_it(self):
        self.check_refused("oracle/cells.h", '#include "cells/gru.h"', "oracle sees public headers only")
        self.check_refused("oracle/cells.h", '#include "bench/suite.h"', "oracle may not see bench")
        self.check_refused("apps/cli/main.cc", '#include "oracle/cells.h"', "apps may not see oracle")
        self.check_refused("src/core/nn/layer.h", '#include "oracle/cells.h"', "nn may not see oracle")

    def test_third_party_headers_have_their_places(self):
        self.check_refused("src/core/nn/layer.h", "#include <hwy/highway.h>", "nn is not among ['backend', 'network', 'runtime']")
        self.check_refused("src/core/nn/layer.h", "#include <boost/any.hpp>", "nn sees the standard library")
        self.check_refused("src/core/nn/layer.h", "#include <unistd.h>", "nn sees the standard library")

    def test_unknown_files_and_layers(self):
        self.check_refused("src/core/nn/layer.h", '#include "nn/nothing.h"', "there is no such file")
        found = self.complaints(**{"src/core/extra/new.cc": ""})
        self.assertEqual(found, ["src/core/extra/new.cc: src/core/extra is not a layer that tools/check_deps.py knows"])

    def test_long_files(self):
        allowed = check_deps.MAX_LINES
        for path in ("src/core/nn/big.cc", "tests/nn/test_big.cc", "tests/python/test_big.py", "python/penstock/big.py", "tools/big.py"):
            self.assertEqual(self.complaints(**{path: "x;\n" * allowed}), [])
            found = self.complaints(**{path: "x;\n" * (allowed + 1)})
            self.assertEqual(found, [f"{path}: {allowed + 1} lines; split it, {allowed} are allowed"])

    def test_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(check_deps.check_tree(Path(folder))), 1)

    def test_exit_status_and_message(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "include").mkdir()
            (Path(folder) / "include/a.h").write_text("#include <omp.h>\n")
            errors = io.StringIO()
            with mock.patch.object(sys, "argv", ["check_deps.py", folder]), contextlib.redirect_stderr(errors):
                self.assertEqual(check_deps.main(), 1)
            self.assertTrue(errors.getvalue().startswith("include/a.h:1: includes omp.h: "), errors.getvalue())


if __name__ == "__main__":
    unittest.main()
