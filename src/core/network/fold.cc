#include "network/fold.h"

#include <algorithm>
#include <utility>

#include "network/evaluate.h"

namespace penstock::network {

namespace {

/// Steps through the nodes of a network and keeps those that are needed in a run.
class Folding {
 public:
  Folding(Network& network, std::string_view keep) : network_(network), keep_(keep), kernels_(kernels_in_use()) {}

  Status run() {
    std::vector<Node> nodes = std::exchange(network_.nodes, {});
    PENSTOCK_TRY(read(nodes, 0));
    drop_unneeded();
    return {};
  }

 private:
  Status read(std::vector<Node>& nodes, int depth) {
    if (depth > kMostDepth) return Status::unsupported("branches lie more than 32 deep in each other");
    for (Node& node : nodes) {
      Status status = read_node(node, depth);
      if (!status.ok()) return in_node(node, std::move(status));
    }
    return {};
  }

  Status read_node(Node& node, int depth) {
    for (const std::vector<int>* numbers : {&node.reads, &node.writes}) {
      for (const int number : *numbers) {
        if (number < -1 || number >= static_cast<int>(network_.values.size())) {
          return Status::bad_input("it names value number " + text_of(number) + ", which does not exist");
        }
      }
    }
    if (node.op == "If" && node.bodies.size() == 2 && !node.reads.empty() && constant(node.reads[0]) != nullptr) {
      return read_branch(node, depth);
    }
    const Operator* op = find_operator(node.op);
    const bool known = op != nullptr && !node.reads.empty() &&
                       std::ranges::all_of(node.reads, [&](int read) { return read < 0 || constant(read) != nullptr; });
    if (known) return compute(*op, node);
    network_.nodes.push_back(std::move(node));
    return {};
  }

  const Constant* constant(int value) const {
    if (value < 0) return nullptr;
    const int number = network_.values[value].constant;
    return number < 0 || number >= static_cast<int>(network_.constants.size()) ? nullptr : &network_.constants[number];
  }

  Status compute(const Operator& op, Node& node) {
    std::vector<Fact> facts(node.reads.size());
    std::vector<const Fact*> reads;
    for (std::size_t i = 0; i < node.reads.size(); ++i) {
      const Constant* read = constant(node.reads[i]);
      if (read != nullptr) {
        PENSTOCK_TRY(check_shape(read->type, read->shape));
        if (read->bytes.size() != bytes_of(read->type, read->shape)) {
          return Status::bad_input("constant '" + network_.values[node.reads[i]].name + "' lacks elements");
        }
        facts[i] = {read->type, read->shape, read->bytes.empty() ? kNothing : read->bytes.data()};
      }
      reads.push_back(read == nullptr ? nullptr : &facts[i]);
    }
    PENSTOCK_TRY(check_reads(op, reads));
    Preparation preparation(node, op, kernels_, reads);
    PENSTOCK_TRY(op.prepare(preparation));
    std::vector<const std::byte*> results;
    std::shared_ptr<const std::byte[]> memory;
    PENSTOCK_TRY(evaluate(preparation, kernels_, bytes_, memory, results));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Fact& fact = preparation.results[i];
      if (node.writes[i] < 0 || !fact.declared) continue;
      std::shared_ptr<const void> owner = memory;
      if (preparation.viewed >= 0) owner = constant(node.reads[preparation.viewed])->owner;
      Value& value = network_.values[node.writes[i]];
      value.type = fact.type;
      value.constant = static_cast<int>(network_.constants.size());
      network_.constants.push_back({fact.type, fact.shape, {results[i], bytes_of(fact.type, fact.shape)}, owner});
    }
    return {};
  }

  Status read_branch(Node& node, int depth) {
    const Constant& condition = *constant(node.reads[0]);
    if (condition.bytes.size() != size_of(condition.type)) return Status::bad_input("the condition is not one element");
    Network body = std::move(node.bodies[integer_at(condition.type, condition.bytes.data(), 0) != 0 ? 0 : 1]);
    if (body.inputs.size() + 1 != node.reads.size() || body.outputs.size() != node.writes.size()) {
      return Status::bad_input("a branch has other numbers of inputs or outputs than its node");
    }
    const auto inside = [&](int number) { return number >= 0 && number < static_cast<int>(body.values.size()); };
    std::vector<int> number_of(body.values.size(), -1);
    for (std::size_t i = 0; i < body.inputs.size(); ++i) {
      if (!inside(body.inputs[i])) return Status::bad_input("a branch reads what is not there");
      number_of[body.inputs[i]] = node.reads[i + 1];
    }
    const auto first_constant = static_cast<int>(network_.constants.size());
    std::ranges::move(body.constants, std::back_inserter(network_.constants));
    for (std::size_t i = 0; i < body.values.size(); ++i) {
      if (number_of[i] >= 0) continue;
      number_of[i] = static_cast<int>(network_.values.size());
      if (body.values[i].constant >= 0) body.values[i].constant += first_constant;
      network_.values.push_back(std::move(body.values[i]));
    }
    for (Node& inner : body.nodes) {
      for (std::vector<int>* numbers : {&inner.reads, &inner.writes}) {
        for (int& number : *numbers) {
          if (number != -1 && !inside(number)) return Status::bad_input("a branch names a value that does not exist");
          if (number >= 0) number = number_of[number];
        }
      }
    }
    for (std::size_t i = 0; i < body.outputs.size(); ++i) {
      if (!inside(body.outputs[i])) return Status::bad_input("a branch writes what is not there");
      if (node.writes[i] < 0) continue;
      body.nodes.push_back({"Identity", node.name, {number_of[body.outputs[i]]}, {node.writes[i]}});
    }
    return read(body.nodes, depth + 1);
  }

  void drop_unneeded() {
    std::vector<bool> needed(network_.values.size());
    const auto need = [&](int value) {
      if (value >= 0 && value < static_cast<int>(needed.size())) needed[value] = true;
    };
    std::ranges::for_each(network_.outputs, need);
    for (std::size_t i = network_.nodes.size(); i-- > 0;) {
      Node& node = network_.nodes[i];
      const bool kept = !keep_.empty() && (node.op == keep_ || !node.bodies.empty());
      if (kept || std::ranges::any_of(node.writes, [&](int write) { return write >= 0 && needed[write]; })) {
        std::ranges::for_each(node.reads, need);
      } else {
        node.op.clear();
      }
    }
    std::erase_if(network_.nodes, [](const Node& node) { return node.op.empty(); });
    std::vector<Constant> kept;
    std::vector<int> place(network_.constants.size(), -1);
    for (std::size_t i = 0; i < network_.values.size(); ++i) {
      int& number = network_.values[i].constant;
      if (number < 0 || number >= static_cast<int>(place.size())) continue;
      if (!needed[i]) {
        number = -1;
        continue;
      }
      if (place[number] < 0) {
        place[number] = static_cast<int>(kept.size());
        kept.push_back(std::move(network_.constants[number]));
      }
      number = place[number];
    }
    network_.constants = std::move(kept);
  }

  static constexpr std::byte kNothing[8] = {};

  Network& network_;
  std::string_view keep_;
  Kernels kernels_;
  std::size_t bytes_ = 0;
};

}  // namespace

Status fold(Network& network, std::string_view keep) { return Folding(network, keep).run(); }

}  // namespace penstock::network
