#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "penstock/data.h"
#include "penstock/data/rows.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

/// Sequence i has 1 + i % 4 rows, label i % 3 and in its rows x = i, y = 0, 1, 2, ...
std::string sequences(int count) {
  std::string text = "sequence,x,label,y\n";
  for (int i = 0; i < count; ++i) {
    for (int t = 0; t <= i % 4; ++t) {
      text += fmt::format("s{},{},class {},{}\n", i, i, i % 3, t);
    }
  }
  return text;
}

double raw(float value, const Column& column) { return value * column.scale + column.mean; }

/// Checks the rows of an example against sequences() and counts each sequence met.
void check_and_count(const Example& example, const DataDescription& description, std::map<long, int>& met) {
  Index longest = 0;
  for (Index b = 0; b < example.rows; ++b) {
    const float* row = example.features.data() + b * example.steps * 2;
    const long sequence = std::lround(raw(row[0], description.inputs[0]));
    const Index length = 1 + sequence % 4;
    ++met[sequence];
    longest = std::max(longest, length);
    EXPECT_EQ(example.lengths.empty() ? example.steps : example.lengths[b], length);
    for (Index t = 0; t < example.steps; ++t) {
      const std::int32_t label = example.labels[b * example.steps + t];
      EXPECT_EQ(label, t == length - 1 ? sequence % 3 : -1) << "only the last valid step is scored";
      if (t < length) {
        EXPECT_NEAR(raw(row[2 * t], description.inputs[0]), static_cast<double>(sequence), 1e-4);
        EXPECT_NEAR(raw(row[2 * t + 1], description.inputs[1]), static_cast<double>(t), 1e-4);
      } else {
        EXPECT_EQ(row[2 * t], 0.0f);
      }
    }
  }
  EXPECT_EQ(example.steps, longest);
  EXPECT_FALSE(example.continues);
  EXPECT_TRUE(example.targets.empty() && example.tokens.empty() && example.reset.empty());
}

TEST(LabelledData, EachPassShowsEverySequenceOnceInAnotherOrder) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", sequences(30)));
  EXPECT_EQ(data->description().task, Task::classify);
  EXPECT_EQ(data->description().labels.classes, (std::vector<std::string>{"class 0", "class 1", "class 2"}));
  ASSERT_EQ(data->description().inputs.size(), 2u) << "neither sequence nor label is an input";
  EXPECT_EQ(data->training_steps(), 24);
  std::map<long, int> held_out;
  Example example;
  for (Index i = 0; data->validation(i, 4, 1, example); ++i) check_and_count(example, data->description(), held_out);
  EXPECT_EQ(held_out.size(), 6u);
  std::set<std::vector<float>> orders;
  for (int pass = 0; pass < 3; ++pass) {
    std::map<long, int> met;
    std::vector<float> order;
    for (int batch = 0; batch < 3; ++batch) {
      data->next(8, 2, example);  // shorter than some sequences, which are not cut
      EXPECT_EQ(example.rows, 8);
      check_and_count(example, data->description(), met);
      for (Index b = 0; b < 8; ++b) order.push_back(example.features[b * example.steps * 2]);
    }
    EXPECT_EQ(met.size(), 24u);
    for (const auto& [sequence, count] : met) EXPECT_EQ(count + held_out.count(sequence), 1u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST(LabelledData, ABatchMayReachIntoTheNextPass) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", sequences(5)), {.validation_fraction = 0.0});
  std::map<long, int> met;
  Example example;
  data->next(12, 10, example);
  check_and_count(example, data->description(), met);
  for (const auto& [sequence, count] : met) EXPECT_TRUE(count == 2 || count == 3);
  EXPECT_EQ(met.size(), 5u);
  EXPECT_FALSE(data->validation(0, 4, 4, example));
}

TEST(LabelledData, NoLengthsWhenAllAreEqual) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", "sequence,label,x\n1,a,1\n1,a,2\n2,b,3\n2,b,4\n"),
                                  {.validation_fraction = 0.0});
  Example example;
  data->next(2, 10, example);
  EXPECT_TRUE(example.lengths.empty());
  EXPECT_EQ(example.steps, 2);
}

TEST(LabelledData, SeedDecidesWhatIsHeldOut) {
  const TemporaryFolder folder;
  const std::string path = folder.write("l.csv", sequences(40));
  const auto held_out = [&](std::uint64_t seed) {
    const auto data = open_labelled(path, {.seed = seed});
    std::map<long, int> met;
    Example example;
    EXPECT_TRUE(data->validation(0, 100, 1, example));
    EXPECT_EQ(example.rows, 8);
    check_and_count(example, data->description(), met);
    return met;
  };
  EXPECT_EQ(held_out(1), held_out(1));
  EXPECT_NE(held_out(1), held_out(2));
}

TEST(LabelledData, NormalisationSeesTheTrainingSequencesOnly) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", "sequence,label,x\n1,a,1\n2,b,2\n3,a,4\n4,b,8\n"),
                                  {.inputs = {"x"}, .validation_fraction = 0.5});
  const Column& column = data->description().inputs[0];
  double sum = 0.0;
  Example example;
  data->next(2, 1, example);
  for (const float value : example.features) sum += value;
  EXPECT_NEAR(sum, 0.0, 1e-6);
  ASSERT_TRUE(data->validation(0, 2, 1, example));
  EXPECT_NEAR(raw(example.features[0], column) + raw(example.features[1], column) + 2 * column.mean, 15.0, 1e-5);
}

TEST(LabelledData, ClassesAreSorted) {
  const TemporaryFolder folder;
  const auto classes = [&](const std::string& content) {
    return open_labelled(folder.write("l.csv", content))->description().labels.classes;
  };
  EXPECT_EQ(classes("sequence,label,x\n1,10,1\n2,9,1\n3,-1,1\n4,2.5,2\n"),
            (std::vector<std::string>{"-1", "2.5", "9", "10"}));
  EXPECT_EQ(classes("sequence,label,x\n1,b10,1\n2,b9,1\n3,a,1\n4,9,2\n"),
            (std::vector<std::string>{"9", "a", "b10", "b9"}));
}

TEST(LabelledData, PositionAndRestore) {
  const TemporaryFolder folder;
  const std::string path = folder.write("l.csv", sequences(30));
  const auto data = open_labelled(path);
  Example expected, example;
  for (int i = 0; i < 5; ++i) data->next(7, 4, expected);
  const std::string position = data->position();
  const auto other = open_labelled(path);
  other->restore(position);
  for (int i = 0; i < 5; ++i) {
    data->next(7, 4, expected);
    other->next(7, 4, example);
    EXPECT_EQ(example.features, expected.features);
    EXPECT_EQ(example.labels, expected.labels);
  }
  expect_error(ErrorCode::incompatible, "this position belongs to other labelled data",
               [&] { open_labelled(path, {.seed = 1})->restore(position); });
  expect_error(ErrorCode::incompatible, "this position belongs to other labelled data",
               [&] { open_labelled(folder.write("m.csv", sequences(29)))->restore(position); });
  const std::string numbers = position.substr(position.find('['), position.find(']') - position.find('[') + 1);
  EXPECT_EQ(numbers, "[1,11]");
  for (const char* bad : {"[]", "[1]", "[1,2,3]", "[-1,0]", "[0,-1]", "[0,25]", "[9223372036854775807,0]"}) {
    std::string text = position;
    text.replace(text.find(numbers), numbers.size(), bad);
    expect_error(ErrorCode::bad_input, "the position in the labelled data lies outside of them",
                 [&] { data->restore(text); });
  }
}

TEST(LabelledData, BadFiles) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& content, const std::string& message) {
    const std::string path = folder.write("l.csv", content);
    expect_error(ErrorCode::bad_input, path + message, [&] { open_labelled(path); });
  };
  refuse("", ": the file is empty");
  refuse("sequence,label,x\n", ": no rows after the header");
  refuse("sequence,label\n1,2\n", ": no numeric column to use as input among \"sequence\", \"label\"");
  refuse("sequence,label,x\n1,a,1\n1,b,2\n", ":3:3: label \"b\" in sequence \"1\", which began with label \"a\"");
  refuse("sequence,label,x\n1,a,1\n1,,2\n", ":3:3: column \"label\": the value is missing");
  refuse("sequence,label,x\n,a,1\n", ":2:1: column \"sequence\": the value is missing");
  refuse("sequence,label,x\n1,a,1\n2,b,\n3,b,2\n", ":3:5: column \"x\": the value is missing");
  refuse("sequence,label,x\n1,a,1\n2,b,inf\n", ":3:5: column \"x\": \"inf\" is not a finite number");
  refuse("sequence,label,x\n1,a,1\n2,b\n", ":3:3: 2 fields, the header has 3");
  refuse("sequence,label,x\n1,a,1\n", ": 1 sequence is too few: training needs one and validation one");
  refuse("sequence,label,x\n1,a,1\n2,a,2\n", ": every sequence has the label \"a\"; there must be at least two labels");
}

/// 40 sequences of 10 rows as they are written where all rows are sorted by time.
std::string by_time() {
  std::string text = "sequence,label,x\n";
  for (int t = 0; t < 10; ++t) {
    for (int i = 0; i < 40; ++i) text += fmt::format("s{},class {},{}\n", i, i % 2, (i + t) * t % 7);
  }
  return text;
}

TEST(LabelledData, ASequenceDoesNotComeBack) {
  const TemporaryFolder folder;
  const std::string path = folder.write("l.csv", by_time());
  expect_error(ErrorCode::bad_input,
               "l.csv:42:1: sequence \"s0\" appears again after others: the rows of a sequence must follow each other",
               [&] { open_labelled(path); });
  expect_error(ErrorCode::bad_input, "Sort the rows by column \"sequence\"", [&] { open_labelled(path); });
  // Another file has other sequences.
  const std::string one = folder.write("one.csv", sequences(10)), two = folder.write("two.csv", sequences(10));
  EXPECT_EQ(open_labelled(Sources{one, two}, {.validation_fraction = 0.0})->training_steps(), 20);
}

TEST(LabelledData, ASequenceDoesNotComeBackInRowsLaterOn) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", sequences(30)));
  const std::string rows = "sequence,x,y\na,1,0\na,1,1\nb,2,0\na,1,2\nb,1,3\n";
  const auto starts = [&](const RowFormat& format) {
    Rows reader(Table{"rows.csv", rows}, data->description(), {.keep = {}, .format = format});
    Index count = 0;
    while (reader.next() != Rows::Kind::end) count += reader.starts_sequence() ? 1 : 0;
    EXPECT_NE(reader.reader().findings().returning_sequences.first, "");
    return count;
  };
  expect_error(ErrorCode::bad_input, "rows.csv:5:1: sequence \"a\" appears again after others", [&] { starts({}); });
  EXPECT_EQ(starts({.replace_bad = true}), 3) << "a stream cannot be sent again";
}

TEST(LabelledData, BadOptions) {
  const TemporaryFolder folder;
  const std::string path = folder.write("l.csv", sequences(10));
  const auto refuse = [&](const LabelledOptions& options, const std::string& message) {
    expect_error(ErrorCode::invalid_argument, message, [&] { open_labelled(path, options); });
  };
  const std::string only = " only \"sequence\", \"x\", \"label\", \"y\"";
  refuse({.sequence_column = "id"}, "sequence_column: " + path + " has no column \"id\"," + only);
  refuse({.label_column = "id"}, "label_column: " + path + " has no column \"id\"," + only);
  refuse({.inputs = {"z"}}, "inputs: " + path + " has no column \"z\"," + only);
  refuse({.inputs = {"x", "label"}}, "inputs: column \"label\" is the label and cannot be an input too");
  refuse({.label_column = "sequence"}, "sequence_column and label_column are both \"sequence\"");
  refuse({.validation_fraction = -1.0}, "validation_fraction must be in [0, 0.5], not -1");
  refuse({.format = {.delimiter = '"'}}, "delimiter must be a character that no number contains");
}

}  // namespace
}  // namespace penstock
