#include <algorithm>

#include "base/check.h"
#include "nn/model/model_graph.h"
#include "nn/model/model_impl.h"
#include "nn/model/model_spec.h"
#include "penstock/model.h"

namespace penstock {

namespace {

/// Copies a member's parameters to where the ensemble has them. Heads are divided by the number of members: their sum
/// is then the mean.
void copy_member(const Model::Impl& member, Index index, Model::Impl& ensemble) {
  const std::string prefix = nn::member_prefix(ensemble.spec, index);
  const float share = 1.0f / static_cast<float>(ensemble.spec.members);
  for (const nn::ParameterEntry& entry : member.parameters->layout().entries()) {
    const nn::ParameterEntry* const found = ensemble.parameters->layout().find(prefix + entry.name);
    if (found == nullptr) continue;  // of the branch, which is there once
    const auto from = std::as_const(*member.parameters).value(entry);
    const auto to = ensemble.parameters->value(*found);
    const bool head = entry.name.starts_with("head.");
    std::ranges::transform(from, to.begin(), [&](float value) { return head ? share * value : value; });
  }
}

bool same_shapes(const Model::Impl& a, const Model::Impl& b) {
  const auto& left = a.parameters->layout().entries();
  return std::ranges::equal(left, b.parameters->layout().entries(), [](const auto& one, const auto& other) {
    return one.name == other.name && one.shape == other.shape;
  });
}

}  // namespace

void Model::check_members(Index count) const {
  ModelSpec spec = impl().spec;
  spec.members = count;
  nn::check_spec(spec, impl().data);
}

Model Model::combine(std::span<const Model> members) {
  require(!members.empty(), "members must be at least one model");
  const Impl& first = members.front().impl();
  ModelSpec spec = first.spec;
  require(spec.members == 1, "members must be single models, not an ensemble of {}", spec.members);
  require(spec.int8.empty(), "members must have no weights of int8: quantise the ensemble");
  require(!spec.branch || spec.corrects_branch(), "members must be without filters, which are fitted to the ensemble");
  for (const Model& each : members) {
    const ModelSpec& other = each.spec();
    if (other.cell != spec.cell || other.members != 1 || other.from_last != spec.from_last ||
        other.end_norms != spec.end_norms || !same_shapes(first, each.impl())) {
      fail(ErrorCode::incompatible, "members must all be of one form: {} of width {} and {} of width {} are not",
           spec.cell, spec.width, other.cell, other.width);
    }
  }
  spec.members = static_cast<Index>(members.size());
  auto impl = std::make_unique<Impl>(spec, first.data);
  for (Index i = 0; i < spec.members; ++i) copy_member(members[static_cast<std::size_t>(i)].impl(), i, *impl);
  nn::copy_shared(*first.parameters, *impl->parameters);  // the branch
  return Model(std::move(impl));
}

}  // namespace penstock
