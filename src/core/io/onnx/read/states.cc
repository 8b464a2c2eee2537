#include "io/onnx/read/states.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/check.h"

namespace penstock::io::onnx {
namespace {

using network::Network;
using network::Node;

/// The words of a name: "prevState_1" has prev, state and 1.
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words;
  bool open = false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isalnum(c) == 0) {
      open = false;
      continue;
    }
    const bool after_lower = i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    if (!open || (std::isupper(c) != 0 && after_lower)) words.emplace_back();
    open = true;
    words.back() += static_cast<char>(std::tolower(c));
  }
  return words;
}

constexpr std::array kBefore = {"in", "input", "prev", "previous", "past", "old", "initial", "init", "last", "i", "0"};
constexpr std::array kAfter = {"out",     "output", "next", "new", "final", "present", "updated", "cur",
                               "current", "n",      "o",    "1",   "t",     "after",   "result"};
constexpr std::array kStateWords = {"h",      "c",       "s",    "hx",     "cx",        "hc",   "state",
                                    "states", "hidden",  "cell", "cache",  "caches",    "ctx",  "context",
                                    "buf",    "buffer",  "mem",  "memory", "rnn",       "lstm", "gru",
                                    "hist",   "history", "conv", "carry",  "recurrent", "tra",  "inter"};

bool is_in(const auto& list, std::string_view word) { return std::ranges::find(list, word) != list.end(); }

/// How far a stem may be from its name: without words for before and after; also without a last "n" as in "hn" or
/// "stateN", or "0" as in "h0"; also without numbers, as in "h_0" and "h_1". Numbers come last, because they are mostly
/// those of layers.
enum class Stem { words, endings, numbers };

std::string stem_of(const std::string& name, bool after, Stem kind) {
  std::string stem;
  std::vector<std::string> words = words_of(name);
  for (std::string& word : words) {
    const bool role = after ? is_in(kAfter, word) : is_in(kBefore, word);
    if (role && words.size() > 1 && (kind == Stem::numbers || (word != "0" && word != "1"))) continue;
    const char last = after ? 'n' : '0';
    const std::string shorter = word.substr(0, word.size() - 1);
    if (kind != Stem::words && word.back() == last && is_in(kStateWords, shorter)) word = shorter;
    stem += (stem.empty() ? "" : "_") + word;
  }
  return stem;
}

/// Returns whether a stem speaks of a state, with or without a number behind the word.
bool is_of_a_state(const std::string& stem) {
  return std::ranges::any_of(words_of(stem), [](std::string word) {
    while (word.size() > 1 && std::isdigit(static_cast<unsigned char>(word.back())) != 0) word.pop_back();
    return is_in(kStateWords, word);
  });
}

bool can_be_equal(const network::Shape& input, const Declared& output) {
  if (!output.has_shape || output.shape.empty()) return true;
  return std::ranges::equal(input, output.shape, [](Index a, Index b) { return a < 0 || b < 0 || a == b; });
}

/// Values that depend on a value, as a mark for each.
std::vector<bool> dependents(const Network& network, int value) {
  std::vector<bool> marked(network.values.size(), false);
  marked[static_cast<std::size_t>(value)] = true;
  for (const Node& node : network.nodes) {
    const bool reads =
        std::ranges::any_of(node.reads, [&](int each) { return each >= 0 && marked[static_cast<std::size_t>(each)]; });
    const bool passes = node.op == "Identity" && node.reads[0] == value;  // A mask that returns is no state.
    if (!reads || passes || node.op == "Shape" || node.op == "Size") continue;
    for (const int write : node.writes) {
      if (write >= 0) marked[static_cast<std::size_t>(write)] = true;
    }
  }
  return marked;
}

/// Operators that move a state's elements without changing them.
bool is_moving(const Node& node) {
  constexpr std::array moving = {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze",
                                 "Slice",    "Gather",  "Split",     "Concat"};
  return is_in(moving, node.op);
}

/// Returns for each value the recurrent layers, as numbers of nodes, that a state reaches unchanged from `from`.
std::vector<std::size_t> layers_started_by(const Network& network, int from) {
  std::vector<bool> same(network.values.size(), false);
  same[static_cast<std::size_t>(from)] = true;
  std::vector<std::size_t> layers;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    const auto carries = [&](std::size_t read) {
      return read < node.reads.size() && node.reads[read] >= 0 && same[static_cast<std::size_t>(node.reads[read])];
    };
    if (node.op == "Recurrent") {
      for (std::size_t read = network::kRecurrentFirstState; read < node.reads.size(); ++read) {
        if (carries(read)) layers.push_back(i * 8 + read - network::kRecurrentFirstState);
      }
    }
    bool moves = is_moving(node) && carries(0);
    for (std::size_t read = 1; node.op == "Concat" && read < node.reads.size(); ++read) moves = moves || carries(read);
    for (const int write : node.writes) {
      if (moves && write >= 0) same[static_cast<std::size_t>(write)] = true;
    }
  }
  return layers;
}

/// The recurrent layers whose last states an output holds, unchanged.
std::vector<std::size_t> layers_ending_in(const Network& network, int output) {
  std::vector<bool> same(network.values.size(), false);
  same[static_cast<std::size_t>(output)] = true;
  std::vector<std::size_t> layers;
  for (std::size_t i = network.nodes.size(); i-- > 0;) {
    const Node& node = network.nodes[i];
    for (std::size_t write = 0; write < node.writes.size(); ++write) {
      if (node.writes[write] < 0 || !same[static_cast<std::size_t>(node.writes[write])]) continue;
      if (node.op == "Recurrent" && write > 0) layers.push_back(i * 8 + write - 1);
      if (!is_moving(node)) continue;
      const std::size_t carried = node.op == "Concat" ? node.reads.size() : 1;
      for (std::size_t read = 0; read < carried; ++read) {
        if (node.reads[read] >= 0) same[static_cast<std::size_t>(node.reads[read])] = true;
      }
    }
  }
  std::ranges::sort(layers);
  return layers;
}

class StateFinder {
 public:
  StateFinder(BuiltNetwork& built, const std::string& source)
      : built_(built), network_(built.network), source_(source) {
    taken_inputs_.resize(network_.inputs.size());
    taken_outputs_.resize(network_.outputs.size());
  }

  void take(const StateChoice& choice);
  void find_layers();
  void find_names();

 private:
  const network::Value& input(std::size_t i) const {
    return network_.values[static_cast<std::size_t>(network_.inputs[i])];
  }
  const std::string& output_name(std::size_t i) const { return built_.outputs[i].name; }
  void add(std::size_t in, std::size_t out) {
    network_.states.push_back({static_cast<int>(in), static_cast<int>(out)});
    taken_inputs_[in] = taken_outputs_[out] = true;
  }
  bool fits(std::size_t in, std::size_t out) const {
    return !taken_inputs_[in] && !taken_outputs_[out] && can_be_equal(input(in).shape, built_.outputs[out]);
  }

  BuiltNetwork& built_;
  Network& network_;
  const std::string& source_;
  std::vector<bool> taken_inputs_, taken_outputs_;
};

void StateFinder::take(const StateChoice& choice) {
  for (const auto& [in, out] : choice.pairs) {
    std::vector<std::string> ins, outs;
    for (std::size_t i = 0; i < network_.inputs.size(); ++i) ins.push_back(input(i).name);
    for (const Declared& each : built_.outputs) outs.push_back(each.name);
    const auto find = [&](const std::vector<std::string>& names, const std::string& name, const char* kind) {
      const auto found = std::ranges::find(names, name);
      if (found == names.end()) {
        std::vector<std::string> shown_names;
        for (const std::string& each : names) shown_names.push_back(shown(each));
        require_about(false, "state", ": {} has no {} {}, but {}", source_, kind, in_quotes(name),
                      fmt::join(shown_names, ", "));
      }
      return static_cast<std::size_t>(found - names.begin());
    };
    const std::size_t from = find(ins, in, "input"), to = find(outs, out, "output");
    if (taken_inputs_[from] || taken_outputs_[to]) {
      require_about(false, "state", ": {}={} names an input or output of another state", shown(in), shown(out));
    }
    if (!can_be_equal(input(from).shape, built_.outputs[to])) {
      require_about(false, "state", ": {} has the shape [{}], and {} [{}]: a state keeps its shape", shown(in),
                    fmt::join(input(from).shape, ", "), shown(out), fmt::join(built_.outputs[to].shape, ", "));
    }
    add(from, to);
  }
}

void StateFinder::find_layers() {
  for (std::size_t in = 0; in < network_.inputs.size(); ++in) {
    const std::vector<std::size_t> layers = layers_started_by(network_, network_.inputs[in]);
    if (layers.empty()) continue;
    for (std::size_t out = 0; out < network_.outputs.size(); ++out) {
      if (fits(in, out) && layers_ending_in(network_, network_.outputs[out]) == layers) {
        add(in, out);
        break;
      }
    }
  }
}

void StateFinder::find_names() {
  std::vector<std::string> unclear;
  std::vector<bool> asked(network_.inputs.size());
  for (const Stem kind : {Stem::words, Stem::endings, Stem::numbers}) {
    for (std::size_t in = 0; in < network_.inputs.size(); ++in) {
      if (taken_inputs_[in] || asked[in]) continue;
      const std::string stem = stem_of(input(in).name, false, kind);
      const std::vector<bool> follow = dependents(network_, network_.inputs[in]);
      std::vector<std::size_t> found;
      for (std::size_t out = 0; out < network_.outputs.size(); ++out) {
        const bool depends = follow[static_cast<std::size_t>(network_.outputs[out])];
        if (fits(in, out) && depends && stem_of(output_name(out), true, kind) == stem) found.push_back(out);
      }
      if (found.size() == 1 && is_of_a_state(stem)) {
        add(in, found.front());
        continue;
      }
      const bool is_numbered = std::ranges::all_of(stem, [](unsigned char c) { return std::isalpha(c) == 0; });
      if (is_numbered) continue;
      for (const std::size_t out : found) {
        unclear.push_back(fmt::format("{}={}", shown(input(in).name), shown(output_name(out))));
      }
      asked[in] = !found.empty();
    }
  }
  if (unclear.empty()) return;
  fail_with(ErrorCode::unsupported,
            {the_option("state", unclear.front()), " says that it is one, ", the_option("state", "none"),
             " that there are no others"},
            "{}: it is not clear whether {} {}", source_,
            fmt::join(unclear.begin(), unclear.begin() + std::min<std::ptrdiff_t>(std::ssize(unclear), 5), ", "),
            unclear.size() == 1 ? "is a state" : "are states");
}

}  // namespace

void find_states(BuiltNetwork& built, const StateChoice& choice, const std::string& source) {
  StateFinder finder(built, source);
  finder.take(choice);
  if (!choice.automatic) return;
  finder.find_layers();
  finder.find_names();
}

}  // namespace penstock::io::onnx
