// Tables of texts and labels as data: which are recognised, what is held out, what a batch holds, what is refused.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/classify/labels.h"
#include "penstock/data.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/model.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

/// Text i says its number, and as many words behind it as i has a remainder by five; labels 0, 1 and 2 in turn.
std::string text_of(int i) {
  std::string text = fmt::format("this is number {},", i);
  for (int word = 0; word < i % 5; ++word) text += " and so on";
  return text;
}
std::string texts(int count) {
  std::string table = "id,review,sentiment\n";
  for (int i = 0; i < count; ++i) table += fmt::format("{},\"{}\",{}\n", i, text_of(i), i % 3);
  return table;
}

std::string text_in(const Example& example, Index row) {
  std::string text;
  for (Index t = 0; t < example.steps; ++t) {
    const std::int32_t token = example.tokens[row * example.steps + t];
    if (token == 0) break;
    text += static_cast<char>(token);
  }
  return text;
}

/// Counts the texts of a batch, each of which says its label at the zero behind it and nowhere else.
void count(const Example& example, std::map<std::string, int>& met) {
  for (Index b = 0; b < example.rows; ++b) {
    const std::string text = text_in(example, b);
    ++met[text];
    const auto length = static_cast<Index>(text.size()) + 1;
    EXPECT_EQ(example.lengths.empty() ? example.steps : example.lengths[b], length);
    const int number = std::stoi(text.substr(std::string("this is number ").size()));
    for (Index t = 0; t < example.steps; ++t) {
      EXPECT_EQ(example.labels[b * example.steps + t], t == length - 1 ? number % 3 : -1) << text << ", byte " << t;
    }
  }
}

TEST(LabelledTexts, AreRecognisedWhereATableIsPlainlyThat) {
  const TemporaryFolder folder;
  EXPECT_TRUE(guess_kind({folder.write("a.csv", texts(60))}) == SourceKind::labelled_texts);
  // Labels are numbers, and yet nothing to forecast.
  const auto data = open_labelled_texts({folder.write("b.csv", texts(60))});
  EXPECT_EQ(data->description().labels.text_column, "review");
  EXPECT_EQ(data->description().labels.classes, (std::vector<std::string>{"0", "1", "2"}));
  std::string dated = "day,remark,label\n", codes = "name,label\n";
  for (int i = 0; i < 60; ++i) {
    dated += fmt::format("2024-{:02}-{:02},{},{}\n", 1 + i / 28, 1 + i % 28, text_of(i), i % 3);
    codes += fmt::format("s{},{}\n", i, i % 3);
  }
  EXPECT_TRUE(guess_kind({folder.write("c.csv", dated)}) == SourceKind::series)
      << "rows that follow each other in time";
  EXPECT_TRUE(guess_kind({folder.write("d.csv", codes)}) == SourceKind::series) << "names are no texts";
}

TEST(LabelledTexts, TheSameShareOfEveryLabelIsHeldOutAndEachPassShowsTheRestOnce) {
  const TemporaryFolder folder;
  const auto data = open_labelled_texts({folder.write("t.csv", texts(100))}, {.validation_fraction = 0.2, .seed = 3});
  EXPECT_EQ(data->held_out_steps(), 7 + 7 + 7);
  EXPECT_EQ(data->training_steps(), 79);
  std::map<std::string, int> held_out;
  Example example;
  for (Index i = 0; data->validation(i, 8, 1, example); ++i) count(example, held_out);
  EXPECT_EQ(held_out.size(), 21u);
  std::map<std::string, int> met;
  for (int i = 0; i < 79; ++i) {
    data->next(1, 1, example);
    count(example, met);
  }
  EXPECT_EQ(met.size(), 79u);
  for (const auto& [text, times] : met) {
    EXPECT_EQ(times, 1) << text;
    EXPECT_FALSE(held_out.contains(text)) << text;
  }
}

TEST(LabelledTexts, APositionIsComeBackTo) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", texts(50));
  const auto data = open_labelled_texts({path}), again = open_labelled_texts({path});
  Example example, other;
  for (int i = 0; i < 9; ++i) data->next(7, 1, example);
  again->restore(data->position());
  data->next(7, 1, example);
  again->next(7, 1, other);
  EXPECT_EQ(example.tokens, other.tokens);
  EXPECT_EQ(example.labels, other.labels);
  const auto foreign = open_labelled_texts({folder.write("u.csv", texts(51))});
  EXPECT_THROW(foreign->restore(data->position()), Error);
}

TEST(LabelledTexts, LongOnesAreCutAndEmptyOnesRefusedOrLeftOut) {
  const TemporaryFolder folder;
  const auto cut = open_labelled_texts({folder.write("t.csv", texts(30))}, {.longest = 10});
  Example example;
  cut->next(4, 1, example);
  EXPECT_EQ(example.steps, 11);
  const std::string gap = folder.write("gap.csv", texts(30) + "30,,1\n31,some text here,\n");
  expect_error(ErrorCode::bad_input, "column \"review\" is empty", [&] { open_labelled_texts({gap}); });
  const auto masked = open_labelled_texts({gap}, {.missing = Missing::mask});
  EXPECT_EQ(masked->training_steps() + masked->held_out_steps(), 30);
  expect_error(ErrorCode::invalid_argument, "missing must be refuse or mask",
               [&] { open_labelled_texts({gap}, {.missing = Missing::carry}); });
  expect_error(ErrorCode::invalid_argument, "longest must be 1 to 1048576, not 0",
               [&] { open_labelled_texts({gap}, {.longest = 0}); });
  expect_error(ErrorCode::bad_input, "at least two labels", [&] {
    open_labelled_texts({folder.write("one.csv", "text,label\nsome words here,a\nand others here,a\n")},
                        {.text_column = "text", .label_column = "label"});
  });
}

TEST(LabelledTexts, AreAnsweredAlikeTogetherAndAlone) {
  const TemporaryFolder folder;
  const auto data = open_labelled_texts({folder.write("t.csv", texts(40))}, {.longest = 600});
  const Model model({.cell = "gru", .width = 8}, data->description(), 1);
  // Around the numbers of bytes that are read at once and of rows in a batch, and beyond what is read.
  std::vector<std::string> all;
  for (const int bytes : {0, 1, 30, 31, 32, 33, 254, 255, 256, 257, 511, 512, 599, 600, 601, 5000}) {
    all.emplace_back(static_cast<std::size_t>(bytes), static_cast<char>('a' + bytes % 20));
  }
  for (int i = 0; i < 100; ++i) all.push_back(text_of(i));
  const std::vector<std::string_view> views(all.begin(), all.end());
  const Execution exact{.exact = true};
  const std::vector<float> together = label_texts(model, views, exact);
  ASSERT_EQ(together.size(), 3 * views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const std::vector<float> alone = label_texts(model, std::span(views).subspan(i, 1), exact);
    const auto own = std::span(together).subspan(3 * i, 3);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), own.begin())) << i << ", " << views[i].size() << " bytes";
    // And the same as the whole text by itself, without what fills up a batch.
    const std::vector<std::int32_t> tokens = text_tokens(model.data(), views[i]);
    std::vector<float> outputs(3 * tokens.size());
    ModelState state = model.state(1);
    model.forward(1, static_cast<Index>(tokens.size()), tokens, outputs, state, exact);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), outputs.end() - 3)) << i << ", " << views[i].size() << " bytes";
  }
  EXPECT_TRUE(label_texts(model, {}).empty());
}

TEST(LabelledTexts, AModelOfThemIsKeptAndAnswersAlikeInBatchesAndAlone) {
  const TemporaryFolder folder;
  const auto data = open_labelled_texts({folder.write("t.csv", texts(40))});
  ModelSpec spec = suggest_spec(*data);
  spec.width = 8;
  Model model(spec, data->description(), 1);
  TrainOptions options = suggest_options(*data);
  options.max_steps = 3;
  train(model, *data, options);
  model.save(folder.path("m"));
  const Model loaded = Model::load(folder.path("m"));
  EXPECT_EQ(loaded.data().labels.text_column, "review");
  EXPECT_EQ(loaded.data().labels.longest_text, 1000);
  const std::vector<std::string_view> one = {"this is number 3"};
  EXPECT_EQ(label_texts(loaded, one), label_texts(model, one));
  EXPECT_EQ(label_texts(loaded, one).size(), 3u);
  const LabelScore score = score_labelled_texts(loaded, {folder.path("t.csv")}, "sentiment");
  Index answered = 0;
  for (const auto& row : score.confusion) {
    for (const Index answers : row) answered += answers;
  }
  EXPECT_EQ(answered, 40);
  DataDescription damaged = data->description();
  damaged.labels.longest_text = 0;
  EXPECT_THROW(Model(spec, damaged, 1), Error);
  damaged = data->description();
  damaged.vocabulary = 100;
  EXPECT_THROW(Model(spec, damaged, 1), Error);
}

}  // namespace
}  // namespace penstock
