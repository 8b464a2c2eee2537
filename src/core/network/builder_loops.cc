// Loops whose number of rounds is known are written out, a round after the other.

#include <algorithm>
#include <cstring>

#include "network/builder.h"
#include "network/evaluate.h"

namespace penstock::network {

namespace {

constexpr Index kMostRounds = 10000;

}  // namespace

/// A known whole number as a new value.
Status Builder::add_number(Index number, Shape shape, int& item) {
  std::shared_ptr<const std::byte[]> owner;
  std::byte* memory = nullptr;
  PENSTOCK_TRY(known_memory(sizeof(Index), known_bytes_, owner, memory));
  std::memcpy(memory, &number, sizeof(Index));
  impl_.known.push_back(std::move(owner));
  item = new_item({Type::i64, std::move(shape), memory, -1, true});
  return {};
}

/// A node of this library's own that reads items and writes a new one.
Status Builder::add_node(const Network& network, std::string op, std::vector<int> items,
                         std::vector<Attribute> attributes, int& result) {
  Node node{std::move(op), "", {}, {static_cast<int>(items.size())}, std::move(attributes)};
  for (std::size_t i = 0; i < items.size(); ++i) node.reads.push_back(static_cast<int>(i));
  items.push_back(-1);
  PENSTOCK_TRY(read_node(network, node, items));
  result = items.back();
  return {};
}

/// What all rounds of a loop share.
struct Builder::Rounds {
  const Network& network;  ///< That the node is part of, for messages.
  const Node& node;
  const Network& body;
  std::size_t states = 0, stacked = 0;  ///< Values from round to round, and those that are collected.
  Numbers constants = {};
  std::vector<int> captured = {};                ///< Items of the body's last inputs.
  std::vector<int> state = {};                   ///< Items, as they enter the next round.
  std::vector<std::vector<int>> collected = {};  ///< For each collected value, the items of all rounds.
};

Status Builder::check_body(const Rounds& rounds, std::size_t inputs, std::size_t outputs) const {
  const Network& body = rounds.body;
  const auto exists = [&](int number) { return number >= 0 && number < static_cast<int>(body.values.size()); };
  if (body.inputs.size() != inputs || body.outputs.size() != outputs || !std::ranges::all_of(body.inputs, exists) ||
      !std::ranges::all_of(body.outputs, exists)) {
    return Status::bad_input("its body has other numbers of inputs or outputs than its node");
  }
  return {};
}

/// Runs the body once: `first` are the items of its first inputs, those of the states follow, then `slices`.
Status Builder::read_round(Rounds& rounds, const std::vector<int>& first, const std::vector<int>& slices,
                           int* condition) {
  const Network& body = rounds.body;
  Numbers items = rounds.constants;
  std::vector<int> all = first;
  for (const std::vector<int>* more :
       std::initializer_list<const std::vector<int>*>{&rounds.state, &slices, &rounds.captured}) {
    all.insert(all.end(), more->begin(), more->end());
  }
  for (std::size_t i = 0; i < all.size(); ++i) items[body.inputs[i]] = all[i];
  PENSTOCK_TRY(read_nodes(body, items));
  std::vector<int> outputs;
  for (const int output : body.outputs) {
    if (items[output] < 0) return Status::bad_input("an output of its body is computed by no node");
    outputs.push_back(items[output]);
  }
  std::size_t next = 0;
  if (condition != nullptr) *condition = outputs[next++];
  for (int& state : rounds.state) state = outputs[next++];
  for (std::vector<int>& collected : rounds.collected) collected.push_back(outputs[next++]);
  return {};
}

/// The node's outputs: the last states, then what was collected, along a new axis.
Status Builder::write_rounds(Rounds& rounds, const std::vector<Index>& axes, const std::vector<Index>& reverse,
                             Numbers& items) {
  const std::vector<int>& writes = rounds.node.writes;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    if (writes[i] < 0) continue;
    if (i < rounds.states) {
      items[writes[i]] = rounds.state[i];
      continue;
    }
    const std::size_t k = i - rounds.states;
    std::vector<int> parts;
    const Index axis = axes.empty() ? 0 : axes[k];
    int number = -1;
    PENSTOCK_TRY(add_number(axis, {1}, number));
    for (const int part : rounds.collected[k]) {
      PENSTOCK_TRY(add_node(rounds.network, "Unsqueeze", {part, number}, {}, parts.emplace_back()));
    }
    if (parts.empty()) return Status::unsupported("no round is run, so the shape of an output is not known");
    if (!reverse.empty() && reverse[k] != 0) std::ranges::reverse(parts);
    PENSTOCK_TRY(add_node(rounds.network, "Concat", parts, {{"axis", {axis}}}, items[writes[i]]));
  }
  return {};
}

Status Builder::read_loop(const Network& network, const Node& node, Numbers& items) {
  if (node.bodies.size() != 1 || node.reads.size() < 2 || node.find("states") == nullptr) {
    return Status::bad_input("it needs a body");
  }
  const Network& body = node.bodies[0];
  const Attribute& states = *node.find("states");
  Rounds rounds{network, node, body};
  rounds.states =
      states.integers.empty() ? 0 : static_cast<std::size_t>(std::clamp<Index>(states.integers[0], 0, 1 << 20));
  if (node.reads.size() < 2 + rounds.states || node.writes.size() < rounds.states) {
    return Status::bad_input("it has fewer inputs or outputs than values that a round hands to the next");
  }
  rounds.stacked = node.writes.size() - rounds.states;
  rounds.collected.resize(rounds.stacked);
  PENSTOCK_TRY(check_body(rounds, node.reads.size(), 1 + node.writes.size()));
  rounds.constants.assign(body.values.size(), -1);
  PENSTOCK_TRY(read_constants(body, rounds.constants));
  for (std::size_t i = 2; i < node.reads.size(); ++i) {
    if (node.reads[i] < 0) return Status::bad_input("its input " + text_of(static_cast<Index>(i) + 1) + " is missing");
    (i < 2 + rounds.states ? rounds.state : rounds.captured).push_back(items[node.reads[i]]);
  }
  Index most = kMostRounds + 1;
  if (node.reads[0] >= 0) {
    const Fact& count = items_[items[node.reads[0]]].fact;
    if (count.known == nullptr)
      return Status::unsupported("how often it runs is not known before a run: " + explain_source(count));
    if (elements(count.shape) != 1) return Status::bad_input("its number of rounds is not one number");
    most = integer_at(count.type, count.known, 0);
  }
  int condition = node.reads[1] < 0 ? -1 : items[node.reads[1]];
  for (Index round = 0; round < most; ++round) {
    if (condition >= 0) {
      const Fact& goes_on = items_[condition].fact;
      if (goes_on.known == nullptr)
        return Status::unsupported("whether it goes on is not known before a run: " + explain_source(goes_on));
      if (elements(goes_on.shape) != 1) return Status::bad_input("its condition is not one element");
      if (integer_at(goes_on.type, goes_on.known, 0) == 0) break;
    }
    if (round == kMostRounds) return Status::unsupported("it runs more than " + text_of(kMostRounds) + " rounds");
    std::vector<int> first(2);
    PENSTOCK_TRY(add_number(round, {}, first[0]));
    first[1] = condition >= 0 ? condition : first[0];
    int ignored = -1;  // without a condition that of the body does not count
    PENSTOCK_TRY(read_round(rounds, first, {}, condition >= 0 ? &condition : &ignored));
  }
  return write_rounds(rounds, {}, {}, items);
}

Status Builder::read_scan(const Network& network, const Node& node, Numbers& items) {
  const auto list = [&](std::string_view name) {
    const Attribute* found = node.find(name);
    return found == nullptr ? std::vector<Index>() : found->integers;
  };
  const std::vector<Index> states = list("states"), scanned = list("num_scan_inputs");
  const Index state_count = states.empty() ? 0 : states[0], scan_count = scanned.empty() ? 0 : scanned[0];
  const auto reads = static_cast<Index>(node.reads.size()), writes = static_cast<Index>(node.writes.size());
  if (node.bodies.size() != 1 || state_count < 0 || scan_count < 1 || state_count > writes || scan_count > reads ||
      state_count > reads - scan_count) {
    return Status::bad_input("its inputs and its body do not fit each other");
  }
  Rounds rounds{network, node, node.bodies[0]};
  rounds.states = static_cast<std::size_t>(state_count);
  rounds.stacked = static_cast<std::size_t>(writes - state_count);
  rounds.collected.resize(rounds.stacked);
  PENSTOCK_TRY(check_body(rounds, node.reads.size(), node.writes.size()));
  rounds.constants.assign(rounds.body.values.size(), -1);
  PENSTOCK_TRY(read_constants(rounds.body, rounds.constants));
  std::vector<Index> in_axes = list("scan_input_axes"), out_axes = list("scan_output_axes");
  const std::vector<Index> in_reverse = list("scan_input_directions"), out_reverse = list("scan_output_directions");
  in_axes.resize(static_cast<std::size_t>(scan_count), 0);
  Index length = -1;
  std::vector<int> whole;
  for (Index i = 0; i < reads; ++i) {
    if (node.reads[i] < 0) return Status::bad_input("its input " + text_of(i + 1) + " is missing");
    const int item = items[node.reads[i]];
    if (i < state_count) {
      rounds.state.push_back(item);
    } else if (i < state_count + scan_count) {
      const Shape& shape = items_[item].fact.shape;
      Index& axis = in_axes[i - state_count];
      const bool exists = normalise_axis(axis, static_cast<Index>(shape.size()));
      if (!exists || (length >= 0 && shape[axis] != length))
        return Status::bad_input("its inputs have other numbers of rounds");
      length = shape[axis];
      whole.push_back(item);
    } else {
      rounds.captured.push_back(item);
    }
  }
  if (length > kMostRounds) return Status::unsupported("it runs more than " + text_of(kMostRounds) + " rounds");
  if ((!in_reverse.empty() && in_reverse.size() != whole.size()) ||
      (!out_axes.empty() && out_axes.size() != rounds.stacked) ||
      (!out_reverse.empty() && out_reverse.size() != rounds.stacked)) {
    return Status::bad_input("its axes or directions do not fit its inputs and outputs");
  }
  for (Index round = 0; round < length; ++round) {
    std::vector<int> slices;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      int number = -1;
      PENSTOCK_TRY(add_number(!in_reverse.empty() && in_reverse[i] != 0 ? length - 1 - round : round, {}, number));
      PENSTOCK_TRY(add_node(network, "Gather", {whole[i], number}, {{"axis", {in_axes[i]}}}, slices.emplace_back()));
    }
    PENSTOCK_TRY(read_round(rounds, {}, slices, nullptr));
  }
  return write_rounds(rounds, out_axes, out_reverse, items);
}

}  // namespace penstock::network
