#include "nn/model/model_graph.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <unordered_map>

#include "nn/model/model_spec.h"

namespace penstock::nn {

using graph::Home;

namespace {

// Fresh logits of this deviation leave the loss at its start near that of guessing. A sum that no norm has brought to
// unit size is smaller.
constexpr double normalised_head = 0.3, plain_head = 0.6;
// A norm behind the input takes the size of W x away: of a single column nothing but the sign would reach the first
// layer. Beside a bias as large as W x usually is, the size decides how far the norm turns from b to W x, and is seen.
constexpr double normalised_input = 1.0, normalised_input_bias = 1.0;
// Without it the first layer's gates are to begin near the middle of their range, and its outputs are to be no less
// than what goes past it.
constexpr double plain_input = 0.3, plain_input_bias = 0.3;

/// The sum of all residuals so far is x + branch, which the next norm makes.
struct ResidualStream {
  ValueId x, branch = {};
  std::uint64_t site = 0;  // of the branch's dropout

  /// The sum as it is.
  ValueId sum(GraphBuilder& builder, const std::string& name, double dropout) {
    if (branch) x = builder.residual_sum(name, x, branch, {dropout, site});
    branch = {};
    return x;
  }

  /// The norm of the sum, which becomes x.
  ValueId normal(GraphBuilder& builder, const std::string& name, double dropout) {
    const GraphBuilder::Sum sum = builder.residual_norm(name, x, branch, {dropout, site});
    x = sum.sum;
    return sum.normal;
  }
};

/// The branch of a recurrent residual, from its norm on.
ValueId recurrent_branch(GraphBuilder& builder, const ModelSpec& spec, const std::string& name, ValueId normal,
                         double scale) {
  ValueId x = normal;
  if (spec.convolution > 0) x = builder.causal_convolution(name + ".convolution", x, spec.convolution);
  const Index hidden = hidden_size(spec);
  // bias_hh would add to bias_ih everywhere but inside GRU's reset product.
  x = builder.recurrence(
      name + ".recurrent", x,
      {.cell = spec.cell, .input = spec.width, .hidden = hidden, .heads = spec.heads, .bias = Bias::single});
  if (hidden != spec.width) x = builder.linear(name + ".projection", x, spec.width, scale);
  return x;
}

void add_block(GraphBuilder& builder, const ModelSpec& spec, const std::string& prefix, Index index,
               ResidualStream& stream) {
  const std::string name = fmt::format("{}blocks.{}", prefix, index);
  const Index inner = feed_forward_size(spec);
  // Branches are scaled so that the sum over all of them has about unit variance at the start, whatever the depth
  // (Radford et al. 2019). Only a branch that ends in a matrix can be scaled.
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.blocks * (inner > 0 ? 2 : 1)));
  builder.layout().set_block(index);
  const ValueId read =
      spec.end_norms || index > 0 ? stream.normal(builder, name + ".recurrent_norm", spec.dropout) : stream.x;
  stream.branch = recurrent_branch(builder, spec, name, read, scale);
  stream.site = static_cast<std::uint64_t>(2 * index);
  if (inner > 0) {
    const ValueId normal = stream.normal(builder, name + ".feed_forward_norm", spec.dropout);
    const ValueId up = builder.linear(name + ".feed_forward.up", normal, 2 * inner);
    ++stream.site;
    stream.branch = builder.linear(name + ".feed_forward.down", builder.silu_gate(name + ".feed_forward.gate", up),
                                   spec.width, scale);
  }
  builder.layout().set_block(-1);
}

ValueId add_input(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data,
                  const std::string& prefix) {
  if (data.vocabulary > 0) return builder.embedding(prefix + "embedding", data.vocabulary, spec.width);
  const ops::Target& target = builder.target();
  const ValueId features = builder.features(data.input_size());
  ValueId x = features;
  if (spec.from_last) {
    x = builder.read_changes(changes_of(data), features);
  } else if (target.has(CallFlag::lengths) || target.dtype != target.master()) {
    x = builder.clear_padding(features);
  }
  const bool norm = spec.end_norms;
  return builder.linear(prefix + "input", x, spec.width, norm ? normalised_input : plain_input, false, Home::workspace,
                        {Initial::Kind::normal, norm ? normalised_input_bias : plain_input_bias, {}});
}

}  // namespace

ops::Changes changes_of(const DataDescription& data) {
  ops::Changes changes;
  changes.inputs = static_cast<Index>(data.inputs.size());
  changes.targets = static_cast<Index>(data.targets.size());
  changes.horizon = data.series.horizon;
  // Targets are scaled by their change over the horizon, and that of a random walk grows with the square root of the
  // distance: so are the changes of one row of about unit variance, and the layers see them.
  changes.change_scale = std::sqrt((static_cast<double>(data.series.horizon) + 1.0) / 2.0);
  std::unordered_map<std::string_view, Index> positions;
  for (Index input = 0; input < changes.inputs; ++input) {
    const Column& column = data.inputs[input];
    if (column.feature == Feature::value && column.ahead == 0) positions.try_emplace(column.name, input);
  }
  for (Index target = 0; target < changes.targets; ++target) {
    const Column& to = data.targets[target];
    const auto found = positions.find(to.name);
    if (found == positions.end()) continue;
    const Column& from = data.inputs[found->second];
    changes.columns.push_back({found->second, target, from.scale / to.scale, (from.mean - to.mean) / to.scale});
  }
  return changes;
}

namespace {

/// One model of an ensemble, or the only one, up to its linear head.
ValueId add_member(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, const std::string& prefix,
                   Home head) {
  ResidualStream stream{.x = add_input(builder, spec, data, prefix)};
  for (Index i = 0; i < spec.blocks; ++i) add_block(builder, spec, prefix, i, stream);
  const ValueId last = spec.end_norms ? stream.normal(builder, prefix + "norm", spec.dropout)
                                      : stream.sum(builder, prefix + "sum", spec.dropout);
  // The layers add nothing to a fitted branch at first.
  const double scale = spec.corrects_branch() ? 0.0 : spec.end_norms ? normalised_head : plain_head;
  return builder.linear(prefix + "head", last, data.output_size(), scale, true, head);
}

}  // namespace

std::string member_prefix(const ModelSpec& spec, Index member) {
  return spec.members > 1 ? fmt::format("members.{}.", member) : std::string();
}

ModelEnds add_model(GraphBuilder& builder, const ModelSpec& spec, const DataDescription& data, Home outputs) {
  const ops::Target& target = builder.target();
  builder.set_int8(spec.int8);
  // Logits of a training step stay in the type of activations: they are the largest tensor of a small model.
  const bool adds = spec.from_last || spec.branch || spec.members > 1;
  const bool cast = target.dtype != target.master() && (outputs == Home::outputs || adds);
  ValueId head = add_member(builder, spec, data, member_prefix(spec, 0), cast ? Home::workspace : outputs);
  const ValueId y = cast ? builder.as_master(head, outputs) : head;
  for (Index member = 1; member < spec.members; ++member) {
    head = add_member(builder, spec, data, member_prefix(spec, member), Home::workspace);
    builder.add(cast ? builder.as_master(head, Home::workspace) : head, y);
  }
  if (spec.from_last) builder.add_last_values(changes_of(data), builder.features(data.input_size()), y);
  if (spec.branch) spec.branch->add_to(builder, data, y);
  return {y, head};
}

}  // namespace penstock::nn
