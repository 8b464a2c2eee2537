// The rows of labelled sequences as they are scored.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/model.h"
#include "penstock/train/score_rows.h"

namespace penstock {
namespace {

/// A model of one column and two classes that was never trained.
Model untrained() {
  DataDescription data;
  data.task = Task::classify;
  data.inputs = {{"x", 0.0, 1.0}};
  data.labels.classes = {"down", "up"};
  data.table.missing = Missing::carry;
  ModelSpec spec;
  spec.cell = "gru";
  spec.width = 8;
  spec.blocks = 1;
  return Model(spec, data, 1);
}

/// Sequences of one row each: values from -8 to 8, and behind each of them a sequence whose value is missing. They are
/// told apart by a column, or by blank lines.
std::string sequences(bool by_column) {
  std::string text = by_column ? "sequence,label,x\n" : "label,x\n";
  int count = 0;
  const auto add = [&](const char* label, const std::string& value) {
    if (!by_column && count > 0) text += "\n";
    if (by_column) text += fmt::format("s{},", count);
    text += fmt::format("{},{}\n", label, value);
    ++count;
  };
  for (int x = -8; x <= 8; ++x) {
    add("up", std::to_string(x));
    add("down", "");
  }
  return text;
}

LabelScore score(const Model& model, const std::string& text) {
  Rows rows(Table{"the table", text}, model.data(), {.keep = {"label"}, .format = {}});
  return score_labelled(model, rows);
}

TEST(LabelledRows, NothingIsCarriedFromOneSequenceIntoTheNext) {
  const Model model = untrained();
  const LabelScore by_column = score(model, sequences(true));
  ASSERT_EQ(by_column.scored, 34);
  // Answers go by the value, so that one that was carried would be seen; those without a value are all the same.
  ASSERT_THAT(by_column.confusion[1], testing::Each(testing::Gt(0)));
  EXPECT_THAT(by_column.confusion[0], testing::Contains(17));
  EXPECT_EQ(score(model, sequences(false)).confusion, by_column.confusion);
}

}  // namespace
}  // namespace penstock
