#include <gtest/gtest.h>

#include <map>
#include <set>

#include "penstock/data.h"
#include "support/expect_error.h"

namespace penstock {
namespace {

using test::expect_error;

/// Calls check(tokens, labels) for each row of some training batches and of all validation batches.
template <class Check>
void for_each_row(Dataset& data, const TaskOptions& options, Check check) {
  Example example;
  const auto visit = [&](Index length) {
    ASSERT_EQ(example.steps, length);
    ASSERT_EQ(static_cast<Index>(example.tokens.size()), example.rows * length);
    ASSERT_EQ(example.labels.size(), example.tokens.size());
    EXPECT_FALSE(example.continues);
    EXPECT_TRUE(example.lengths.empty() && example.reset.empty() && example.features.empty());
    for (Index b = 0; b < example.rows; ++b) {
      const auto begin = static_cast<std::size_t>(b * length);
      check(std::span(example.tokens).subspan(begin, static_cast<std::size_t>(length)),
            std::span(example.labels).subspan(begin, static_cast<std::size_t>(length)));
    }
  };
  for (int i = 0; i < 5; ++i) {
    data.next(16, 7, example);  // T of the task, not of the caller
    visit(options.length);
  }
  Index sequences = 0;
  for (Index i = 0; data.validation(i, 48, 7, example); ++i) {
    visit(options.validation_length);
    sequences += example.rows;
  }
  EXPECT_EQ(sequences, 1024);
}

TEST(Tasks, Names) {
  EXPECT_EQ(task_names(), (std::vector<std::string>{"parity", "modular", "s3", "a5", "s5", "copying", "recall"}));
  expect_error(ErrorCode::invalid_argument,
               "task must be one of parity, modular, s3, a5, s5, copying, recall, not \"sorting\"",
               [] { open_task("sorting"); });
}

TEST(Tasks, Parity) {
  const TaskOptions options;
  const auto data = open_task("parity", options);
  EXPECT_EQ(data->description().task, Task::classify);
  EXPECT_EQ(data->description().vocabulary, 2);
  EXPECT_EQ(data->description().labels.classes, (std::vector<std::string>{"even", "odd"}));
  EXPECT_EQ(data->training_steps(), 0);
  double ones = 0.0, steps = 0.0;
  for_each_row(*data, options, [&](auto tokens, auto labels) {
    int sum = 0;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      ASSERT_TRUE(tokens[t] == 0 || tokens[t] == 1);
      sum += tokens[t];
      ASSERT_EQ(labels[t], sum % 2);
    }
    ones += sum;
    steps += static_cast<double>(tokens.size());
  });
  EXPECT_NEAR(ones / steps, 0.5, 0.01);
}

TEST(Tasks, ModularArithmetic) {
  for (const Index modulus : {2, 5, 64}) {
    TaskOptions options;
    options.modulus = modulus;
    options.validation_length = 100;
    const auto data = open_task("modular", options);
    EXPECT_EQ(data->description().vocabulary, 3 * modulus);
    ASSERT_EQ(static_cast<Index>(data->description().labels.classes.size()), modulus);
    EXPECT_EQ(data->description().labels.classes.back(), std::to_string(modulus - 1));
    std::set<std::int32_t> tokens_met;
    for_each_row(*data, options, [&](auto tokens, auto labels) {
      Index value = 0;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        tokens_met.insert(tokens[t]);
        ASSERT_LT(tokens[t], 3 * modulus);
        const Index digit = tokens[t] % modulus;
        if (tokens[t] < modulus) {
          value += digit;
        } else if (tokens[t] < 2 * modulus) {
          value -= digit;
        } else {
          value *= digit;
        }
        value = ((value % modulus) + modulus) % modulus;
        ASSERT_EQ(labels[t], value);
      }
    });
    EXPECT_EQ(static_cast<Index>(tokens_met.size()), 3 * modulus) << "every operation with every digit";
  }
}

/// Points are moved one after the other, by the names of the permutations.
TEST(Tasks, WordProblems) {
  for (const auto& [name, size] : {std::pair{"s3", 6}, {"a5", 60}, {"s5", 120}}) {
    TaskOptions options;
    options.validation_length = 100;
    const auto data = open_task(name, options);
    const std::vector<std::string> names = data->description().labels.classes;
    ASSERT_EQ(static_cast<int>(names.size()), size);
    EXPECT_EQ(data->description().vocabulary, size);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    std::set<std::int32_t> labels_met;
    for_each_row(*data, options, [&](auto tokens, auto labels) {
      std::string points = names[0];
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        for (char& point : points) point = names[static_cast<std::size_t>(tokens[t])][point - '0'];
        ASSERT_EQ(names[static_cast<std::size_t>(labels[t])], points);
        labels_met.insert(labels[t]);
      }
    });
    EXPECT_EQ(static_cast<int>(labels_met.size()), size) << "products of all lead everywhere";
  }
}

TEST(Tasks, AssociativeRecall) {
  for (const Index pairs : {1, 10, 13}) {
    TaskOptions options;
    options.copy_tokens = pairs;
    const auto data = open_task("recall", options);
    EXPECT_EQ(data->description().vocabulary, 129);
    EXPECT_EQ(data->description().labels.classes.size(), 64u);
    std::set<std::vector<std::int32_t>> orders;
    for_each_row(*data, options, [&](auto tokens, auto labels) {
      std::map<std::int32_t, std::int32_t> value_of;
      std::vector<std::int32_t> asked;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        if (t < static_cast<std::size_t>(2 * pairs)) {
          ASSERT_EQ(labels[t], -1);
          if (t % 2 != 0) {
            ASSERT_TRUE(tokens[t] > 64 && tokens[t] <= 128);
            ASSERT_TRUE(value_of.emplace(tokens[t - 1], tokens[t] - 65).second) << "keys differ";
          } else {
            ASSERT_TRUE(tokens[t] >= 1 && tokens[t] <= 64);
          }
        } else if (tokens[t] == 0) {
          ASSERT_EQ(labels[t], -1);
        } else {
          ASSERT_EQ(value_of.count(tokens[t]), 1u);
          ASSERT_EQ(labels[t], value_of[tokens[t]]);
          asked.push_back(tokens[t]);
        }
      }
      ASSERT_EQ(static_cast<Index>(std::set<std::int32_t>(asked.begin(), asked.end()).size()), pairs)
          << "each key once";
      ASSERT_EQ(static_cast<Index>(asked.size()), pairs);
      orders.insert(asked);
    });
    EXPECT_GT(orders.size(), pairs == 1 ? 60u : 1000u) << "random keys in random order";
  }
}

TEST(Tasks, SelectiveCopying) {
  for (const Index copy_tokens : {1, 10, 20}) {
    TaskOptions options;
    options.copy_tokens = copy_tokens;
    const auto data = open_task("copying", options);
    EXPECT_EQ(data->description().vocabulary, 16);
    EXPECT_EQ(data->description().labels.classes.size(), 14u);
    std::set<std::vector<std::size_t>> patterns;
    for_each_row(*data, options, [&](auto tokens, auto labels) {
      const std::size_t queries = tokens.size() - static_cast<std::size_t>(copy_tokens);
      std::vector<std::int32_t> seen;
      std::vector<std::size_t> places;
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        if (t < queries) {
          ASSERT_TRUE(tokens[t] >= 0 && tokens[t] <= 14);
          ASSERT_EQ(labels[t], -1);
          if (tokens[t] > 0) {
            seen.push_back(tokens[t]);
            places.push_back(t);
          }
        } else {
          ASSERT_EQ(static_cast<Index>(seen.size()), copy_tokens);
          ASSERT_EQ(tokens[t], 15);
          ASSERT_EQ(labels[t], seen[t - queries] - 1) << "in the order in which they came";
        }
      }
      patterns.insert(places);
    });
    EXPECT_GT(patterns.size(), copy_tokens == 1 ? 200u : 1000u) << "places are random";
  }
}

TEST(Tasks, ValidationDoesNotDependOnTheBatchOrOnTraining) {
  for (const auto& name : task_names()) {
    const auto data = open_task(name);
    Example whole, part;
    ASSERT_TRUE(data->validation(0, 1024, 1, whole));
    ASSERT_FALSE(data->validation(1, 1024, 1, part));
    data->next(8, 1, part);
    const std::vector<std::int32_t> training(part.tokens.begin(), part.tokens.begin() + 40);
    EXPECT_NE(training, std::vector<std::int32_t>(whole.tokens.begin(), whole.tokens.begin() + 40));
    std::vector<std::int32_t> tokens;
    for (Index i = 0; data->validation(i, 100, 1, part); ++i) {
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    }
    EXPECT_EQ(tokens, whole.tokens) << name;
    TaskOptions other;
    other.seed = 1;
    ASSERT_TRUE(open_task(name, other)->validation(0, 1024, 1, part));
    EXPECT_NE(part.tokens, whole.tokens) << name;
  }
}

TEST(Tasks, PositionAndRestore) {
  for (const auto& name : task_names()) {
    const auto data = open_task(name);
    Example expected, example;
    data->next(5, 1, expected);
    const std::string position = data->position();
    data->next(5, 1, expected);
    const auto other = open_task(name);
    other->restore(position);
    other->next(5, 1, example);
    EXPECT_EQ(example.tokens, expected.tokens);
    EXPECT_EQ(example.labels, expected.labels);
    EXPECT_EQ(other->position(), data->position());
    TaskOptions options;
    options.length = 41;
    expect_error(ErrorCode::incompatible, "this position belongs to other " + name + " data",
                 [&] { open_task(name, options)->restore(position); });
    const std::string another = name == "parity" ? "modular" : "parity";
    expect_error(ErrorCode::incompatible, "this position belongs to \"" + name + "\" data, not to " + another,
                 [&] { open_task(another)->restore(position); });
    const auto state = position.find("\"random\":[");
    const std::string before = position.substr(0, state);
    for (const std::string& bad : {before + "\"random\":[0,0,0,0]}", before + "\"other\":1}"}) {
      expect_error(ErrorCode::bad_input, "the position in the " + name + " data lies outside of them",
                   [&] { data->restore(bad); });
    }
    for (const std::string& bad :
         {before + "\"random\":[1,2,3]}", before + "\"random\":[1,2,3,4.5]}", before + "\"random\":7}"}) {
      expect_error(ErrorCode::bad_input, "the position in the data cannot be read", [&] { data->restore(bad); });
    }
  }
}

TEST(Tasks, BadOptions) {
  const auto refuse = [](const char* name, const TaskOptions& options, const char* message) {
    expect_error(ErrorCode::invalid_argument, message, [&] { open_task(name, options); });
  };
  refuse("parity", {.length = 0}, "length must be 1 to 16777216, not 0");
  refuse("parity", {.validation_length = -3}, "validation_length must be 1 to 16777216, not -3");
  refuse("modular", {.modulus = 1}, "modulus must be 2 to 64, not 1");
  refuse("modular", {.modulus = 65}, "modulus must be 2 to 64, not 65");
  refuse("parity", {.modulus = 5}, "modulus does not apply to the task parity");
  refuse("modular", {.copy_tokens = 10}, "copy_tokens does not apply to the task modular");
  refuse("copying", {.copy_tokens = 0}, "copy_tokens must be 1 to 20 (half the length of a sequence), not 0");
  refuse("copying", {.copy_tokens = 21}, "copy_tokens must be 1 to 20");
  refuse("copying", {.validation_length = 10}, "copy_tokens must be 1 to 5 (half the length of a sequence), not 10");
  refuse("recall", {.copy_tokens = 14},
         "copy_tokens must be 1 to 13 (a third of the length of a sequence, at most 64)");
  const auto data = open_task("parity");
  Example example;
  expect_error(ErrorCode::invalid_argument, "a batch must have at least one row", [&] { data->next(0, 1, example); });
  expect_error(ErrorCode::invalid_argument, "a batch must have at least one row",
               [&] { data->next(Index{1} << 30, 1, example); });
}

}  // namespace
}  // namespace penstock
