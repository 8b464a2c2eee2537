#include "network/input_shapes.h"

#include <algorithm>

#include "network/tensor.h"

namespace penstock::network {

namespace {

/// "[1, time, ?]": what is free by its name.
std::string form_of(const Value& value) {
  std::string text;
  for (std::size_t i = 0; i < value.shape.size(); ++i) {
    const bool named = !value.axes.empty() && !value.axes[i].empty();
    if (i > 0) text += ", ";
    text += value.shape[i] >= 0 ? std::to_string(value.shape[i]) : named ? value.axes[i] : "?";
  }
  return "[" + text + "]";
}

bool fits(const Value& value, const Shape& shape) {
  return std::ranges::equal(shape, value.shape, [](Index a, Index b) { return a >= 0 && (b < 0 || a == b); });
}

class Completion {
 public:
  explicit Completion(const Network& network) : network_(network) {}

  const Value& input(std::size_t i) const { return network_.values[static_cast<std::size_t>(network_.inputs[i])]; }

  Status take(const Value& value, const Shape& shape) {
    if (!fits(value, shape)) {
      return Status::invalid_argument("shapes: input '" + value.name + "' has the shape " + form_of(value) + ", not " +
                                      text_of(shape));
    }
    for (std::size_t i = 0; i < value.axes.size(); ++i) {
      if (value.axes[i].empty()) continue;
      const Index* const known = find(value.axes[i]);
      if (known == nullptr) known_.push_back({value.axes[i], shape[i]});
      if (known == nullptr || *known == shape[i]) continue;
      return Status::invalid_argument("shapes: '" + value.axes[i] + "' is " + text_of(*known) + " in one input and " +
                                      text_of(shape[i]) + " in '" + value.name + "'");
    }
    return {};
  }

  /// Fills in the free extents of input i.
  Status fill(std::size_t i, Shape& shape) const {
    const Value& value = input(i);
    const bool is_state = std::ranges::any_of(
        network_.states, [&](const State& state) { return static_cast<std::size_t>(state.input) == i; });
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] >= 0) continue;
      const Index* const known = value.axes.empty() ? nullptr : find(value.axes[axis]);
      if (known == nullptr && !is_state) {
        return Status::invalid_argument("shapes: input '" + value.name + "' has the shape " + form_of(value) +
                                        ": give its extents");
      }
      shape[axis] = known != nullptr ? *known : 1;
    }
    return {};
  }

 private:
  struct Axis {
    std::string_view name;
    Index extent;
  };

  const Index* find(std::string_view axis) const {
    const auto found = std::ranges::find(known_, axis, &Axis::name);
    return axis.empty() || found == known_.end() ? nullptr : &found->extent;
  }

  const Network& network_;
  std::vector<Axis> known_;
};

}  // namespace

Status complete_shapes(const Network& network, std::span<const InputShape> given, std::vector<Shape>& all) {
  Completion completion(network);
  all.clear();
  std::string names;
  for (std::size_t i = 0; i < network.inputs.size(); ++i) {
    const Value& value = completion.input(i);
    names += (i > 0 ? ", " : "") + value.name;
    all.push_back(value.shape);
  }
  for (const InputShape& each : given) {
    std::size_t i = 0;
    while (i < all.size() && completion.input(i).name != each.input) ++i;
    if (i == all.size()) {
      return Status::invalid_argument("shapes must be of the inputs " + names + ", not of '" + std::string(each.input) +
                                      "'");
    }
    PENSTOCK_TRY(completion.take(completion.input(i), each.shape));
    all[i] = each.shape;
  }
  for (std::size_t i = 0; i < all.size(); ++i) PENSTOCK_TRY(completion.fill(i, all[i]));
  return {};
}

}  // namespace penstock::network
