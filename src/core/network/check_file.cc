#include "network/check_file.h"

#include <algorithm>

#include "network/preparation.h"
#include "network/tensor.h"

namespace penstock::network {
namespace {

std::string number_of(std::size_t number) { return text_of(static_cast<Index>(number)); }

Status check_constant(const Value& value, const Constant& constant) {
  const Status status = check_shape(constant.type, constant.shape);
  const bool fits = status.ok() && constant.bytes.size() == bytes_of(constant.type, constant.shape);
  if (fits) return {};
  return Status::bad_input("the constant '" + value.name + "' has more or fewer values than its shape");
}

/// Operators that are not in the table, since preparing them takes more than a node.
constexpr std::string_view kOwnCases[] = {"If", "Loop", "Scan", "MatMulInteger", "ConvInteger"};

class Checker {
 public:
  explicit Checker(const Network& network) : network_(network), written_(network.values.size(), false) {}

  Status check(int depth) {
    for (Status (Checker::*part)(int) : {&Checker::check_inputs, &Checker::check_nodes, &Checker::check_outputs}) {
      if (Status status = (this->*part)(depth); !status.ok()) return status;
    }
    return {};
  }

 private:
  bool is_value(int value) const { return value >= 0 && static_cast<std::size_t>(value) < network_.values.size(); }
  bool is_written(int value) const { return is_value(value) && written_[static_cast<std::size_t>(value)]; }
  Status write(int value, const std::string& by) {
    if (!is_value(value)) return Status::bad_input(by + " writes a value that there is not");
    if (is_written(value)) return Status::bad_input(by + " writes '" + at(value).name + "', which is there already");
    written_[static_cast<std::size_t>(value)] = true;
    return {};
  }
  const Value& at(int value) const { return network_.values[static_cast<std::size_t>(value)]; }

  Status check_inputs(int /*depth*/) {
    std::vector<bool> used(network_.constants.size(), false);
    for (std::size_t i = 0; i < network_.values.size(); ++i) {
      const int constant = network_.values[i].constant;
      if (constant < 0) continue;
      if (static_cast<std::size_t>(constant) >= used.size()) {
        return Status::bad_input("the value '" + network_.values[i].name + "' is a constant that there is not");
      }
      Status status = check_constant(network_.values[i], network_.constants[static_cast<std::size_t>(constant)]);
      if (!status.ok()) return status;
      written_[i] = true;
    }
    for (const int input : network_.inputs) {
      if (Status status = write(input, "the list of inputs"); !status.ok()) return status;
      const Value& value = at(input);
      if (!value.axes.empty() && value.axes.size() != value.shape.size()) {
        return Status::bad_input("the input '" + value.name + "' has names for some of its extents");
      }
      if (std::ranges::any_of(value.shape, [](Index each) { return each < -1; })) {
        return Status::bad_input("the input '" + value.name + "' has a negative extent");
      }
    }
    return {};
  }

  Status check_nodes(int depth) {
    for (const Node& node : network_.nodes) {
      const std::string name = node.op + " '" + node.name + "'";
      for (const int read : node.reads) {
        if (read != -1 && !is_written(read)) return Status::bad_input(name + " reads a value that is not there yet");
      }
      if (Status status = check_bodies(node, name, depth); !status.ok()) return status;
      for (const int value : node.writes) {
        if (value == -1) continue;
        if (Status status = write(value, name); !status.ok()) return status;
      }
    }
    return {};
  }

  /// Reads and writes that a node of a body shares with the body: those of Loop begin after the condition.
  static Status check_bodies(const Node& node, const std::string& name, int depth) {
    const std::size_t expected = node.op == "If" ? 2 : node.op == "Loop" || node.op == "Scan" ? 1 : 0;
    if (node.bodies.size() != expected) {
      return Status::bad_input(name + " has " + number_of(node.bodies.size()) + " bodies, expected " +
                               number_of(expected));
    }
    if (expected != 0 && depth == kMostDepth) {
      return Status::bad_input(name + " has a body in bodies, more than " + number_of(kMostDepth) + " deep");
    }
    for (const Network& body : node.bodies) {
      const std::size_t given =
          node.op == "If" ? node.reads.size() - std::min<std::size_t>(node.reads.size(), 1) : node.reads.size();
      const std::size_t taken = node.writes.size() + (node.op == "Loop" ? 1 : 0);
      if ((node.op == "If" && node.reads.empty()) || body.inputs.size() != given || body.outputs.size() != taken) {
        return Status::bad_input(name + " has a body of " + number_of(body.inputs.size()) + " inputs and " +
                                 number_of(body.outputs.size()) + " outputs, expected " + number_of(given) + " and " +
                                 number_of(taken));
      }
      if (!body.states.empty()) return Status::bad_input(name + " has a body with states");
      if (Status status = Checker(body).check(depth + 1); !status.ok()) return status;
    }
    return {};
  }

  Status check_outputs(int /*depth*/) {
    for (const int output : network_.outputs) {
      if (!is_written(output)) return Status::bad_input("an output is a value that nothing writes");
    }
    std::vector<bool> from(network_.inputs.size(), false), to(network_.outputs.size(), false);
    for (const State& state : network_.states) {
      const auto input = static_cast<std::size_t>(state.input), output = static_cast<std::size_t>(state.output);
      if (state.input < 0 || input >= from.size() || from[input] || state.output < 0 || output >= to.size() ||
          to[output]) {
        return Status::bad_input("a state names an input or an output that there is not, or that of another state");
      }
      from[input] = to[output] = true;
    }
    return {};
  }

  const Network& network_;
  std::vector<bool> written_;
};

}  // namespace

Status check(const Network& network) { return Checker(network).check(0); }

Status check_operators(const Network& network) {
  for (const Node& node : network.nodes) {
    if (std::ranges::find(kOwnCases, node.op) != std::end(kOwnCases) || find_operator(node.op) != nullptr) continue;
    return Status::unsupported(node.op + " '" + node.name + "': there is no such operator in this library");
  }
  return {};
}

}  // namespace penstock::network
