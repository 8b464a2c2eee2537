#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "data/dataset.h"
#include "penstock/data/tasks.h"

namespace penstock {
namespace {

using Tokens = std::span<std::int32_t>;

/// One generated sequence: writes tokens and labels (-1: not scored), both of the sequence's length.
using TaskWriter = void (*)(const TaskOptions& options, Random& random, Tokens tokens, Tokens labels);

/// Fills vocabulary and classes; throws Error(invalid_argument) for options that are impossible.
using Describe = void (*)(const TaskOptions& options, DataDescription& description);

/// Parity: each token is a bit, each label says whether the ones so far are odd. A state of one bit, but every one of
/// the inputs can flip it, and no input can be forgotten.
void describe_parity(const TaskOptions&, DataDescription& description) {
  description.vocabulary = 2;
  description.labels.classes = {"even", "odd"};
}

void generate_parity(const TaskOptions&, Random& random, Tokens tokens, Tokens labels) {
  std::int32_t parity = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    tokens[t] = static_cast<std::int32_t>(random.below(2));
    labels[t] = parity ^= tokens[t];
  }
}

/// Modular arithmetic: a value starts at 0, each token is an operation and a digit (token = operation * m + digit with
/// the operations +, -, *), each label is the value after it, modulo m.
void describe_modular(const TaskOptions& options, DataDescription& description) {
  const Index modulus = *options.modulus;
  require_argument(modulus >= 2 && modulus <= 64, "modulus", modulus, "2 to 64");
  description.vocabulary = 3 * modulus;
  for (Index value = 0; value < modulus; ++value) description.labels.classes.push_back(std::to_string(value));
}

void generate_modular(const TaskOptions& options, Random& random, Tokens tokens, Tokens labels) {
  const Index m = *options.modulus;
  Index value = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const Index operation = random.below(3);
    const Index digit = random.below(m);
    const std::array<Index, 3> results = {value + digit, value - digit + m, value * digit};
    value = results[operation] % m;
    tokens[t] = static_cast<std::int32_t>(operation * m + digit);
    labels[t] = static_cast<std::int32_t>(value);
  }
}

/// Selective copying: `copy_tokens` data tokens stand at random places among noise; then as many queries ask for them
/// in their order. Tokens: 0 noise, 1..14 data, 15 query (the 16 of the usual form of the task). Scored at the queries.
constexpr std::int32_t copying_data_tokens = 14;
constexpr std::int32_t copying_query = copying_data_tokens + 1;

void describe_copying(const TaskOptions& options, DataDescription& description) {
  const Index copied = *options.copy_tokens, most = std::min(options.length, options.validation_length) / 2;
  require_argument(copied >= 1 && copied <= most, "copy_tokens", copied, "1 to {} (half the length of a sequence)",
                   most);
  description.vocabulary = copying_query + 1;
  for (int token = 1; token <= copying_data_tokens; ++token)
    description.labels.classes.push_back(std::to_string(token));
}

void generate_copying(const TaskOptions& options, Random& random, Tokens tokens, Tokens labels) {
  std::fill(tokens.begin(), tokens.end(), 0);
  std::fill(labels.begin(), labels.end(), -1);
  const Index copied = *options.copy_tokens, length = static_cast<Index>(tokens.size()) - copied;
  Index written = 0;
  // Each place is chosen with the probability that makes all selections of copy_tokens places equally likely.
  for (Index t = 0; t < length; ++t) {
    if (random.below(length - t) >= copied - written) continue;
    const auto token = static_cast<std::int32_t>(1 + random.below(copying_data_tokens));
    tokens[t] = token;
    tokens[length + written] = copying_query;
    labels[length + written] = token - 1;
    ++written;
  }
}

/// Permutations of `points` points, all or the even ones, and for each pair the number of the first followed by the
/// second.
struct Permutations {
  std::vector<std::string> names;  // "201": what the points go to
  std::vector<std::int32_t> products;
};

template <int points, bool even>
const Permutations& permutations() {
  static const Permutations made = [] {
    Permutations all;
    std::string permutation;
    for (int i = 0; i < points; ++i) permutation += static_cast<char>('0' + i);
    do {
      int inversions = 0;
      for (int i = 0; i < points; ++i) {
        for (int j = 0; j < i; ++j) inversions += permutation[j] > permutation[i] ? 1 : 0;
      }
      if (!even || inversions % 2 == 0) all.names.push_back(permutation);
    } while (std::next_permutation(permutation.begin(), permutation.end()));
    for (const std::string& first : all.names) {
      for (const std::string& second : all.names) {
        std::string both = first;
        for (char& point : both) point = second[point - '0'];
        const auto at = std::lower_bound(all.names.begin(), all.names.end(), both);
        all.products.push_back(static_cast<std::int32_t>(at - all.names.begin()));
      }
    }
    return all;
  }();
  return made;
}

/// Word problems: each token is a permutation, each label what all so far make one after the other. Those of A5 and S5
/// are not solvable: no fixed number of layers that look at the input alone tracks them for any length (Barrington
/// 1989; Merrill, Petty and Sabharwal 2024).
template <int points, bool even>
void describe_words(const TaskOptions&, DataDescription& description) {
  description.labels.classes = permutations<points, even>().names;
  description.vocabulary = static_cast<Index>(description.labels.classes.size());
}

template <int points, bool even>
void generate_words(const TaskOptions&, Random& random, Tokens tokens, Tokens labels) {
  const Permutations& of = permutations<points, even>();
  const auto size = static_cast<Index>(of.names.size());
  Index state = 0;  // the first in order moves no point
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const Index next = random.below(size);
    state = of.products[state * size + next];
    tokens[t] = static_cast<std::int32_t>(next);
    labels[t] = static_cast<std::int32_t>(state);
  }
}

/// Associative recall with several queries (Arora et al. 2023): `copy_tokens` different keys, each before its value,
/// then noise among which every key comes again once, at a random place; its value is asked for there. Tokens: 0 noise,
/// 1..64 keys, 65..128 values. Scored at the keys that come again.
constexpr Index recall_symbols = 64;

void describe_recall(const TaskOptions& options, DataDescription& description) {
  const Index most = std::min(recall_symbols, std::min(options.length, options.validation_length) / 3);
  const Index pairs = *options.copy_tokens;
  require_argument(pairs >= 1 && pairs <= most, "copy_tokens", pairs,
                   "1 to {} (a third of the length of a sequence, at most {})", most, recall_symbols);
  description.vocabulary = 1 + 2 * recall_symbols;
  for (Index value = 1; value <= recall_symbols; ++value) description.labels.classes.push_back(std::to_string(value));
}

void generate_recall(const TaskOptions& options, Random& random, Tokens tokens, Tokens labels) {
  std::fill(tokens.begin(), tokens.end(), 0);
  std::fill(labels.begin(), labels.end(), -1);
  std::array<std::int32_t, recall_symbols> keys{};
  std::iota(keys.begin(), keys.end(), 0);
  std::array<std::int32_t, recall_symbols> value_of{};
  const auto draw_key = [&](Index i, Index end) { std::swap(keys[i], keys[i + random.below(end - i)]); };
  const Index pairs = *options.copy_tokens;
  for (Index i = 0; i < pairs; ++i) {
    draw_key(i, recall_symbols);
    value_of[keys[i]] = static_cast<std::int32_t>(random.below(recall_symbols));
    tokens[2 * i] = 1 + keys[i];
    tokens[2 * i + 1] = static_cast<std::int32_t>(1 + recall_symbols + value_of[keys[i]]);
  }
  const auto length = static_cast<Index>(tokens.size());
  Index asked = 0;
  for (Index t = 2 * pairs; t < length; ++t) {
    if (random.below(length - t) >= pairs - asked) continue;
    draw_key(asked, pairs);
    tokens[t] = 1 + keys[asked];
    labels[t] = value_of[keys[asked]];
    ++asked;
  }
}

struct TaskEntry {
  const char* name;
  Describe describe;
  TaskWriter generate;
  std::string_view option = {};  ///< The one option of TaskOptions that some tasks do not have.
};

constexpr std::array<TaskEntry, 7> tasks = {{
    {"parity", describe_parity, generate_parity},
    {"modular", describe_modular, generate_modular, "modulus"},
    {"s3", describe_words<3, false>, generate_words<3, false>},
    {"a5", describe_words<5, true>, generate_words<5, true>},
    {"s5", describe_words<5, false>, generate_words<5, false>},
    {"copying", describe_copying, generate_copying, "copy_tokens"},
    {"recall", describe_recall, generate_recall, "copy_tokens"},
}};

/// Sequences of the task's own length, whatever T is asked for: never cut, and never longer than `length`, so that
/// validation at another length shows what was learnt.
class TaskDataset final : public Dataset {
 public:
  TaskDataset(const TaskEntry& task, const TaskOptions& options)
      : task_(task), options_(options), random_(options.seed) {
    description_.task = Task::classify;
    options_.modulus = options.modulus.value_or(5), options_.copy_tokens = options.copy_tokens.value_or(10);
    task.describe(options_, description_);
    fingerprint_ =
        data::fingerprint(fmt::format("{} {} {} {} {} {}", task.name, options.length, options.validation_length,
                                      *options_.modulus, *options_.copy_tokens, options.seed));
  }

  const DataDescription& description() const override { return description_; }
  Index training_steps() const override { return 0; }

  void next(Index rows, Index steps, Example& example) override {
    data::check_batch(rows, std::max(steps, options_.length));
    resize(example, rows, options_.length);
    for (Index b = 0; b < rows; ++b) generate(random_, b, example);
  }

  bool validation(Index i, Index rows, Index steps, Example& example) const override {
    data::check_batch(rows, std::max(steps, options_.validation_length));
    if (i < 0 || i >= (validation_sequences + rows - 1) / rows) return false;
    const Index first = i * rows;
    rows = std::min(rows, validation_sequences - first);
    resize(example, rows, options_.validation_length);
    for (Index b = 0; b < rows; ++b) {
      // A seed per sequence: the same sequences however they are cut into batches. Inverted, so that they are not the
      // first of training.
      Random random(Random(~options_.seed).bits() + static_cast<std::uint64_t>(first + b));
      generate(random, b, example);
    }
    return true;
  }

  std::string position() const override { return data::to_text({task_.name, fingerprint_, {}, random_.state()}); }
  void restore(const std::string& position) override {
    const auto parsed = data::parse_position(position, task_.name, fingerprint_);
    // All zeros is the one state from which the generator would never leave.
    if (!parsed.random || *parsed.random == Random::State{}) data::bad_position(task_.name);
    random_ = Random(*parsed.random);
  }

 private:
  /// Enough for an accuracy to be known to a fraction of a per cent, few enough for a minute's run.
  static constexpr Index validation_sequences = 1024;

  static void resize(Example& example, Index rows, Index steps) {
    data::clear(example, rows, steps);
    example.tokens.resize(static_cast<std::size_t>(rows * steps));
    example.labels.resize(static_cast<std::size_t>(rows * steps));
  }

  void generate(Random& random, Index row, Example& example) const {
    const auto length = static_cast<std::size_t>(example.steps);
    task_.generate(options_, random, std::span(example.tokens).subspan(row * length, length),
                   std::span(example.labels).subspan(row * length, length));
  }

  const TaskEntry& task_;
  TaskOptions options_;
  DataDescription description_;
  Random random_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

const std::vector<std::string>& task_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& task : tasks) list.emplace_back(task.name);
    return list;
  }();
  return names;
}

std::unique_ptr<Dataset> open_task(const std::string& name, const TaskOptions& options) {
  constexpr Index longest = Index{1} << 24;
  require_argument(options.length >= 1 && options.length <= longest, "length", options.length, "1 to {}", longest);
  require_argument(options.validation_length >= 1 && options.validation_length <= longest, "validation_length",
                   options.validation_length, "1 to {}", longest);
  for (const auto& task : tasks) {
    if (name != task.name) continue;
    const auto check = [&](std::string_view option, bool given) {
      require_about(!given || option == task.option, option, " does not apply to the task {}", name);
    };
    check("modulus", options.modulus.has_value()), check("copy_tokens", options.copy_tokens.has_value());
    return std::make_unique<TaskDataset>(task, options);
  }
  fail_choice("task", name, task_names());
}

}  // namespace penstock
