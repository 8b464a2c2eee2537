#include "network/preparation.h"

#include <algorithm>

namespace penstock::network {

const Operator* find_operator(std::string_view name) {
  constexpr Operators (*files[])() = {
    shape_operators,
    movement_operators,
    index_operators,
    pointwise_operators,
    condition_operators,
    product_operators,
    einsum_operator,
    convolution_operators,
    reduction_operators,
    normalisation_operators,
    recurrent_operators,
    resize_operators,
    signal_operators,
    quantized_operators,
    pool_operators,
#if !PENSTOCK_RUNTIME
    rounded_operators,
#endif
  };
  for (const auto file : files) {
    const Operators operators = file();
    const auto found = std::ranges::find(operators, name, &Operator::name);
    if (found != operators.end()) return &*found;
  }
  return nullptr;
}

Status in_node(const Node& node, Status status) {
  status.text = node.op + (node.name.empty() ? "" : " '" + node.name + "'") + ": " + status.text;
  return status;
}

Status check_reads(const Operator& op, std::vector<const Fact*>& reads) {
  while (!reads.empty() && reads.back() == nullptr) reads.pop_back();
  const auto count = static_cast<int>(reads.size());
  if (count < op.least_reads || count > op.most_reads) {
    const std::string most = op.most_reads >= kAny             ? " or more"
                             : op.most_reads == op.least_reads ? ""
                                                               : " to " + text_of(op.most_reads);
    return Status::bad_input("it has " + text_of(count) + " inputs; expected " + text_of(op.least_reads) + most);
  }
  for (int i = 0; i < op.least_reads; ++i) {
    if (reads[i] == nullptr) return Status::bad_input("its input " + text_of(i + 1) + " is missing");
  }
  return {};
}

Preparation::Preparation(const Node& node, const Operator& op, const Kernels& kernels, std::vector<const Fact*> reads)
    : results(node.writes.size()), node_(node), op_(op), kernels_(kernels), reads_(std::move(reads)) {
  while (!reads_.empty() && reads_.back() == nullptr) reads_.pop_back();
}

int Preparation::variant() const { return op_.variant; }

Index Preparation::integer(std::string_view attribute, Index otherwise) const {
  const Attribute* found = node_.find(attribute);
  return found == nullptr || found->integers.empty() ? otherwise : found->integers[0];
}

float Preparation::number(std::string_view attribute, float otherwise) const {
  const Attribute* found = node_.find(attribute);
  return found == nullptr || found->numbers.empty() ? otherwise : found->numbers[0];
}

std::string_view Preparation::text(std::string_view attribute, std::string_view otherwise) const {
  const Attribute* found = node_.find(attribute);
  return found == nullptr || found->text.empty() ? otherwise : std::string_view(found->text);
}

std::vector<Index> Preparation::integers(std::string_view attribute) const {
  const Attribute* found = node_.find(attribute);
  return found == nullptr ? std::vector<Index>() : found->integers;
}

Status Preparation::known_integers(std::size_t i, std::string_view what, std::vector<Index>& values) const {
  if (!has(i)) return refuse(std::string(what) + " is missing");
  if (rank(i) > 1) {
    return refuse(std::string(what) + " has shape " + text_of(shape(i)) + "; it must be a list of whole numbers");
  }
  if (known(i) == nullptr) {
    return unsupported(std::string(what) +
                       " depends on what is in the inputs, so the shape of the result is not known before a run; only "
                       "what depends on constants and on the inputs' shapes is supported");
  }
  values.clear();
  for (Index k = 0; k < count(i); ++k) values.push_back(integer_at(type(i), known(i), k));
  return {};
}

Status Preparation::known_number(std::size_t i, std::string_view what, double& value) const {
  if (!has(i)) return {};
  if (known(i) == nullptr || count(i) != 1) {
    return unsupported(std::string(what) + " must be one number that does not depend on the inputs");
  }
  value = real_at(type(i), known(i), 0);
  return {};
}

Status Preparation::known_axes(std::size_t i, Index rank, std::vector<Index>& axes) const {
  if (has(i)) {
    PENSTOCK_TRY(known_integers(i, "'axes'", axes));
  } else {
    axes = integers("axes");
  }
  for (Index& axis : axes) {
    if (!normalise_axis(axis, rank)) {
      return refuse("axis " + text_of(axis) + " does not exist: there are " + text_of(rank) + " axes");
    }
  }
  std::vector<Index> sorted = axes;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) return refuse("'axes' " + text_of(axes) + " names one twice");
  return {};
}

Status Preparation::axis(Index otherwise, Index rank, Index& axis) const {
  axis = integer("axis", otherwise);
  if (normalise_axis(axis, rank)) return {};
  return refuse("axis " + text_of(axis) + " does not exist: there are " + text_of(rank) + " axes");
}

Status Preparation::only(std::size_t i, std::initializer_list<Type> types) const {
  if (std::ranges::find(types, type(i)) != types.end()) return {};
  std::string names;
  for (const Type allowed : types) names += (names.empty() ? "" : ", ") + std::string(name_of(allowed));
  return unsupported("input " + text_of(static_cast<Index>(i) + 1) + " has type " + std::string(name_of(type(i))) +
                     "; supported: " + names);
}

Status Preparation::same_types(std::size_t first, std::size_t last) const {
  for (std::size_t i = first + 1; i < std::min(last, reads()); ++i) {
    if (!has(i) || !has(first) || type(i) == type(first)) continue;
    return refuse("the inputs have types " + std::string(name_of(type(first))) + " and " +
                  std::string(name_of(type(i))) + "; they must be the same");
  }
  return {};
}

Status Preparation::broadcast_reads(std::size_t first, std::size_t last, Shape& all) const {
  all = shape(first);
  for (std::size_t i = first + 1; i < last; ++i) {
    if (!has(i)) return refuse("input " + text_of(static_cast<Index>(i) + 1) + " is missing");
    if (!broadcast(all, shape(i), all)) {
      return refuse("shapes " + text_of(all) + " and " + text_of(shape(i)) + " do not fit each other");
    }
  }
  return {};
}

Status Preparation::write(std::size_t i, Type type, Shape shape) {
  PENSTOCK_TRY(check_shape(type, shape));
  if (i >= results.size()) return {};
  results[i].declared = true;
  results[i].type = type;
  results[i].shape = std::move(shape);
  return {};
}

void Preparation::give(std::vector<Index> values) {
  given = std::move(values);
  is_given = true;
}

Step& Preparation::run(Run function, std::size_t scratch_bytes) {
  step.run = function;
  step.scratch_bytes = scratch_bytes;
  return step;
}

}  // namespace penstock::network
