// The search for a model: that it looks at the training part alone, what it tries, and that it goes on where it
// stopped.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "penstock/train/search.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "toy_data.h"
#include "train/search_space.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::string text_of(int bytes, char last) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>('a' + i * i % 7);
  for (int i = 0; i < bytes / 4; ++i) text += last;
  return text;
}

std::string labelled(int sequences) {
  std::string text = "sequence,label,x\n";
  for (int i = 0; i < sequences; ++i) {
    for (int t = 0; t < 3; ++t)
      text += fmt::format("s{},{},{}\n", i, i % 2 ? "up" : "down", (i % 2 ? t : -t) + 0.01 * i);
  }
  return text;
}

SearchSpace small_space() {
  return {.cells = {"mingru", "gru"}, .widths = {4, 8}, .dropouts = {0.0, 0.3}, .learning_rates = {1e-7, 0.02}};
}

SearchOptions budget(double seconds) {
  SearchOptions options;
  options.space = small_space();
  options.seconds = seconds;
  return options;
}

SearchTrial trial_of(const SearchChoice& choice, std::vector<double> losses) {
  SearchTrial trial;
  trial.choice = choice;
  trial.losses = std::move(losses);
  return trial;
}

/// Everything but the search itself.
struct Task {
  ModelSpec spec = {.cell = "gru", .width = 8, .blocks = 1};
  TrainOptions options;
  Task() {
    options.max_steps = 25;
    options.batch = 8;
    options.length = 16;
    options.learning_rate = 1e-7;
    options.execution.threads = 1;
  }
};

/// A callback that ends a search before training number `count`.
SearchCallbacks stop_after(std::size_t count, std::vector<std::string>& tried) {
  SearchCallbacks callbacks;
  callbacks.trial = [&tried](const SearchTrial& trial, Index, bool) {
    tried.push_back(fmt::format("{}: {}", trial.choice.text(), trial.losses.back()));
  };
  callbacks.stop = [&tried, count] { return tried.size() >= count; };
  return callbacks;
}

TEST(Search, ATextsInnerPartIsItsBeginning) {
  const TemporaryFolder folder;
  const auto data = open_text(folder.write("t.txt", text_of(400, '!')), {.validation_fraction = 0.2});
  const auto inner = data->inner(0);
  EXPECT_EQ(inner->training_steps() + inner->held_out_steps(), data->training_steps());
  EXPECT_EQ(inner->held_out_steps(), data->training_steps() / 10);
  Example example;
  for (int i = 0; i < 10; ++i) {
    inner->next(4, 50, example);
    EXPECT_EQ(std::ranges::count(example.tokens, '!') + std::ranges::count(example.labels, '!'), 0);
  }
  Index scored = 0;
  for (Index i = 0; inner->validation(i, 4, 16, example); ++i) {
    EXPECT_EQ(std::ranges::count(example.tokens, '!') + std::ranges::count(example.labels, '!'), 0);
    scored += std::ranges::count_if(example.labels, [](std::int32_t label) { return label >= 0; });
  }
  EXPECT_EQ(scored, inner->held_out_steps());
  EXPECT_NE(inner->position(), data->position());
}

/// The x of the last step of every sequence, which is different for each.
std::multiset<float> all_of(Dataset& data, bool held_out) {
  std::multiset<float> found;
  Example example;
  if (held_out) {
    for (Index i = 0; data.validation(i, 1, 3, example); ++i) found.insert(example.features[2]);
    return found;
  }
  for (Index i = 0; i < data.training_steps(); ++i) {
    data.next(1, 3, example);
    found.insert(example.features[2]);
  }
  return found;
}

TEST(Search, LabelledSequencesAreDividedInSeveralWays) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", labelled(50)), {});
  ASSERT_EQ(data->folds(), 3);
  const std::multiset<float> training = all_of(*data, false);
  std::set<std::multiset<float>> parts;
  for (Index fold = 0; fold < 3; ++fold) {
    const auto inner = data->inner(fold);
    EXPECT_EQ(inner->held_out_steps(), 8) << "a fifth of 40";
    std::multiset<float> together = all_of(*inner, false);
    const std::multiset<float> held_out = all_of(*inner, true);
    parts.insert(held_out);
    together.insert(held_out.begin(), held_out.end());
    EXPECT_EQ(together, training) << "each of the training part once, and no other";
  }
  EXPECT_EQ(parts.size(), 3u);
}

TEST(Search, ASeriesInnerPartIsFittedAnew) {
  const TemporaryFolder folder;
  std::string text = "x\n";
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{}\n", std::sin(0.5 * i) + 0.1 * (i % 3) + (i < 128 ? 0.0 : 0.3 * i));
  const SeriesOptions options{.horizon = 2, .from_last = true, .autoregression = true};
  const auto data = open_series(folder.write("s.csv", text), options);
  const auto inner = data->inner(0);
  EXPECT_EQ(inner->training_steps(), 127) << "of 160 rows that train, 32 are held out";
  EXPECT_EQ(inner->held_out_steps(), 32);
  // Same as a file that ends before the held-out rows.
  const std::string shorter =
      text.substr(0, text.find(fmt::format("\n{}\n", std::sin(80.0) + 0.1 * (160 % 3) + 48.0)) + 1);
  const auto alone = open_series(folder.write("t.csv", shorter), options);
  ASSERT_EQ(alone->training_steps(), 127);
  EXPECT_EQ(linear_forecast(*inner)->weights, linear_forecast(*alone)->weights);
  EXPECT_NE(linear_forecast(*inner)->weights, linear_forecast(*data)->weights);
  EXPECT_EQ(inner->description().inputs[0].mean, alone->description().inputs[0].mean);
  Example ours, theirs;
  for (Index i = 0; inner->validation(i, 4, 16, ours); ++i) {
    ASSERT_TRUE(alone->validation(i, 4, 16, theirs));
    EXPECT_EQ(ours.features, theirs.features);
    EXPECT_EQ(ours.targets, theirs.targets);
    EXPECT_EQ(ours.weights, theirs.weights);
  }
}

TEST(Search, ProposalsAreNewAndInTheSpace) {
  const SearchSpace space = small_space();
  const training::Proposals proposals(space, 5);
  std::vector<SearchTrial> trials = {trial_of({"gru", 8, 0.0, 0.02}, {1.0})};
  while (const auto choice = proposals.next(trials)) {
    EXPECT_TRUE(std::ranges::count(space.cells, choice->cell) && std::ranges::count(space.widths, choice->width) &&
                std::ranges::count(space.dropouts, choice->dropout) &&
                std::ranges::count(space.learning_rates, choice->learning_rate));
    EXPECT_EQ(std::ranges::count(trials, *choice, &SearchTrial::choice), 0);
    EXPECT_EQ(*proposals.next(trials), *choice) << "the same after a stop";
    trials.push_back(trial_of(*choice, {static_cast<double>(trials.size())}));
    ASSERT_LE(trials.size(), 16u);
  }
  EXPECT_GE(trials.size(), 14u) << "nearly all of the 16 that there are";
}

TEST(Search, WhatWasTrainedMostOftenIsTheBest) {
  std::vector<SearchTrial> trials = {trial_of({}, {3.0}), trial_of({}, {1.0, 5.0}), trial_of({}, {2.0, 2.0}),
                                     trial_of({}, {2.5})};
  EXPECT_EQ(training::best_trial(trials), 2u) << "the mean of two, and not the luckiest of one";
  EXPECT_EQ(training::trial_to_repeat(trials, 2), 3u) << "the third best by its first loss";
  trials[3].losses.push_back(2.5);
  EXPECT_EQ(training::trial_to_repeat(trials, 2), std::nullopt);
  EXPECT_EQ(training::trial_to_repeat(trials, 3), 1u);
}

TEST(Search, FindsARateThatLearns) {
  const TemporaryFolder folder;
  const auto data = open_labelled(folder.write("l.csv", labelled(60)), {});
  const Task task;
  const SearchOptions options = budget(600.0);
  std::vector<std::string> tried;
  const SearchResult result = search(task.spec, *data, task.options, options, stop_after(8, tried));
  EXPECT_EQ(result.trials.front().choice, (SearchChoice{"gru", 8, 0.0, 1e-7})) << "what it would have been without";
  EXPECT_EQ(result.best.learning_rate, 0.02);
  EXPECT_LT(result.loss(), 0.8 * result.trials.front().loss());
  EXPECT_TRUE(result.interrupted);
}

TEST(Search, WhatIsHeldOutChangesNothing) {
  const TemporaryFolder folder;
  const Task task;
  std::vector<std::vector<std::string>> tried(2);
  for (int i = 0; i < 2; ++i) {
    const auto data = open_text(folder.write("t.txt", text_of(400, i == 0 ? '!' : 'a')), {.validation_fraction = 0.2});
    search(task.spec, *data, task.options, budget(600.0), stop_after(4, tried[i]));
  }
  EXPECT_EQ(tried[0].size(), 4u);
  EXPECT_EQ(tried[0], tried[1]);
}

TEST(Search, GoesOnWhereItStopped) {
  const TemporaryFolder folder;
  const auto data = open_text(folder.write("t.txt", text_of(400, '!')), {});
  const Task task;
  SearchOptions options = budget(600.0);
  options.path = folder.path("record");
  options.seed = 3;
  std::vector<std::string> whole, first, rest;
  search(task.spec, *data, task.options, options, stop_after(5, whole));
  search(task.spec, *data, task.options, options, stop_after(2, first));  // anew: the file is replaced
  options.resume = true;
  const SearchResult result = search(task.spec, *data, task.options, options, stop_after(3, rest));
  EXPECT_EQ(result.trials.size(), 5u);
  first.insert(first.end(), rest.begin(), rest.end());
  EXPECT_EQ(first, whole);
  options.seed = 4;
  expect_error(ErrorCode::incompatible, "this is another search",
               [&] { search(task.spec, *data, task.options, options); });
  folder.write("record", "{}\nnothing\n");
  expect_error(ErrorCode::incompatible, "this is another search",
               [&] { search(task.spec, *data, task.options, options); });
}

TEST(Search, ASearchThatEndedIsNotRepeated) {
  const TemporaryFolder folder;
  const auto data = open_text(folder.write("t.txt", text_of(300, '!')), {});
  const Task task;
  SearchOptions options = budget(600.0);
  options.space = {{"gru"}, {8}, {0.0}, {1e-7, 0.02}};
  options.path = folder.path("record");
  std::vector<std::string> tried, again;
  const SearchResult result = search(task.spec, *data, task.options, options, stop_after(1000, tried));
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(tried.size(), 6u) << "two choices, three times each";
  options.resume = true;
  const SearchResult known = search(task.spec, *data, task.options, options, stop_after(1000, again));
  EXPECT_EQ(again.size(), 0u);
  EXPECT_EQ(known.best, result.best);
  EXPECT_EQ(known.loss(), result.loss());
}

TEST(Search, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  const Task task;
  test::CopyTask endless;
  expect_error(ErrorCode::unsupported, "a search needs data that have an end",
               [&] { search(task.spec, endless, task.options, budget(1.0)); });
  const auto data = open_text(folder.write("t.txt", text_of(300, '!')), {});
  SearchOptions nothing = budget(1.0);
  nothing.space = {};
  expect_error(ErrorCode::invalid_argument, "search must be positive, not 0",
               [&] { search(task.spec, *data, task.options, budget(0.0)); });
  expect_error(ErrorCode::invalid_argument, "not one training ended within 1e-09 s",
               [&] { search(task.spec, *data, task.options, budget(1e-9)); });
  expect_error(ErrorCode::invalid_argument, "space must have at least one value of each kind",
               [&] { search(task.spec, *data, task.options, nothing); });
}

}  // namespace
}  // namespace penstock
