// Products of integers, computed as floats or, where the chip has instructions for it, as bytes. Floats with the same
// numbers stay beside the integers that go in and come out, so that conversions between both cost no steps.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "network/builder.h"

namespace penstock::network {

namespace {

constexpr Index kToFloat = 1, kToInteger = 6;  // ONNX's numbers of types

#if !PENSTOCK_RUNTIME
/// Returns an operator that no file has: it trusts what it reads.
const Operator* find_own_operator(std::string_view name) {
  for (const Operators operators : {dynamic_operators(), byte_operators()}) {
    const auto found = std::ranges::find(operators, name, &Operator::name);
    if (found != operators.end()) return &*found;
  }
  return nullptr;
}
#endif

}  // namespace

/// Reads a node that is part of another one. It writes `value`, or a new one, which is set, where that is -1.
Status Builder::add_step(const Network& network, const Node& of, std::string op, std::vector<int> reads,
                         std::vector<Attribute> attributes, Numbers& items, int& value) {
  if (value < 0) {
    value = static_cast<int>(items.size());
    items.push_back(-1);
  }
  const Node node{std::move(op), of.name, std::move(reads), {value}, std::move(attributes)};
#if !PENSTOCK_RUNTIME
  if (const Operator* const own = find_own_operator(node.op)) return prepare(*own, node, items);
#endif
  return read_node(network, node, items);
}

/// The same for a Cast to an ONNX number of a type.
Status Builder::add_cast(const Network& network, const Node& of, int read, Index to, Numbers& items, int& value) {
  return add_step(network, of, "Cast", {read}, {{"to", {to}}}, items, value);
}

/// A factor without its zero point, as floats.
Status Builder::read_factor(const Network& network, const Node& node, std::size_t i, Numbers& items, int& value) {
  const bool has_zero = node.reads.size() > i + 2 && node.reads[i + 2] >= 0;
#if !PENSTOCK_RUNTIME
  if (has_zero && node.reads[i] >= 0) {
    const auto levels = levels_.find(items[node.reads[i]]);
    if (levels != levels_.end() && levels->second.zero == items[node.reads[i + 2]]) {
      value = static_cast<int>(items.size());
      items.push_back(levels->second.floats);
      return {};
    }
  }
#endif
  PENSTOCK_TRY(add_cast(network, node, node.reads[i], kToFloat, items, value));
  if (!has_zero) return {};
  const Fact& zero = items_[items[node.reads[i + 2]]].fact;
  const bool per_column = i == 1 && node.op != "ConvInteger" && zero.shape.size() == 1;
  if (elements(zero.shape) != 1 && !per_column) {
    std::string text = "zero points of shape " + text_of(zero.shape) + "; supported: one number";
#if !PENSTOCK_RUNTIME
    const auto is_of_rows = [&](const auto& levels) {
      return levels.second.of_rows != nullptr && levels.second.zero == items[node.reads[i + 2]];
    };
    if (std::ranges::any_of(levels_, is_of_rows)) {
      text =
          "something between it and DynamicQuantizeLinear, such as a Reshape, hides which row each of its int8 numbers "
          "belongs to; put it in front of DynamicQuantizeLinear, or give each stream a session of its own";
    }
#endif
    return Status::unsupported(text);
  }
  int zero_point = -1;
  PENSTOCK_TRY(add_cast(network, node, node.reads[i + 2], kToFloat, items, zero_point));
  const int bytes = std::exchange(value, -1);
  return add_step(network, node, "Sub", {bytes, zero_point}, {}, items, value);
}

/// A product of integers without their zero points, as one of floats: exact up to 2^24, and to 24 bits beyond.
Status Builder::read_integer_product(const Network& network, const Node& node, Numbers& items) {
  if (node.reads.size() < 2 || node.writes.size() != 1) return Status::bad_input("it needs two inputs and one output");
  std::string op = node.op == "ConvInteger" ? "Conv" : "MatMul";
  std::vector<int> factors = {-1, -1};
  std::vector<Attribute> attributes = node.attributes;
#if !PENSTOCK_RUNTIME
  if (fits_bytes(node, items)) {
    const Levels& levels = levels_.find(items[node.reads[0]])->second;
    op.insert(0, "Byte");
    factors = {static_cast<int>(items.size()), static_cast<int>(items.size()) + 1, node.reads[2], node.reads[1],
               node.reads.size() > 3 ? node.reads[3] : -1};
    items.push_back(levels.x), items.push_back(levels.scale);
    if (levels.of_rows != nullptr) attributes.push_back(*levels.of_rows);
  } else
#endif
  {
    for (std::size_t i = 0; i < 2; ++i) PENSTOCK_TRY(read_factor(network, node, i, items, factors[i]));
  }
  int product = -1, whole = node.writes[0];
  PENSTOCK_TRY(add_step(network, node, std::move(op), std::move(factors), std::move(attributes), items, product));
  PENSTOCK_TRY(add_cast(network, node, product, kToInteger, items, whole));
#if !PENSTOCK_RUNTIME
  wholes_[items[whole]] = items[product];
#endif
  return {};
}

#if !PENSTOCK_RUNTIME

/// Returns whether kernels multiply bytes, and this node multiplies those of a dynamic range and constants with at most
/// one zero point; see byte_operators.cc.
bool Builder::fits_bytes(const Node& node, const Numbers& items) const {
  const auto fact_of = [&](std::size_t i) {
    return i < node.reads.size() && node.reads[i] >= 0 ? &items_[items[node.reads[i]]].fact : nullptr;
  };
  const Fact *const x = fact_of(0), *const weight = fact_of(1), *const zero = fact_of(2), *const of_weight = fact_of(3);
  if (impl_.kernels.round_to_bytes == nullptr || x == nullptr || weight == nullptr || zero == nullptr) return false;
  const auto levels = levels_.find(items[node.reads[0]]);
  if (levels == levels_.end()) return false;
  if (levels->second.zero != items[node.reads[2]] || x->known != nullptr || weight->known == nullptr) return false;
  if (weight->type != Type::u8 && weight->type != Type::i8) return false;
  const Shape& shape = weight->shape;
  const bool convolves = node.op == "ConvInteger";
  const auto rank = static_cast<Index>(x->shape.size());
  if (convolves ? rank < 3 || x->shape.size() != shape.size() : shape.size() != 2 || rank < 2) return false;
  const Attribute *const groups = node.find("group"), *const rows = levels->second.of_rows;
  if (convolves && groups != nullptr && groups->integers != std::vector<Index>{1}) return false;
  if (rows != nullptr && (rows->integers.size() != 1 || rows->integers[0] >= (convolves ? 1 : rank - 1))) return false;
  constexpr Index least = 16, most = 1 << 15;  // sums of so many products fit 32 bits, fewer fill no vector
  const Index inner = convolves ? elements(shape, 1) : shape[0];
  if (inner < least || inner > most) return false;
  if (of_weight == nullptr) return true;
  return of_weight->known != nullptr && of_weight->type == weight->type && elements(of_weight->shape) == 1;
}

/// Reads a node whose integers have floats beside them; `done` if it was one.
Status Builder::read_whole_numbers(const Network& network, const Node& node, Numbers& items, bool& done) {
  const auto whole_of = [&](std::size_t i) { return wholes_.find(node.reads[i] < 0 ? -1 : items[node.reads[i]]); };
  done = true;
  if (node.op.ends_with("DynamicQuantizeLinear") && node.writes.size() == 3 && node.reads.size() == 1) {
    return read_dynamic(network, node, items);
  }
  if (node.op == "Add" && node.reads.size() == 2 && node.writes.size() == 1 &&
      (whole_of(0) != wholes_.end()) != (whole_of(1) != wholes_.end())) {
    return read_whole_sum(network, node, items);
  }
  if (node.op == "Cast" && node.reads.size() == 1 && node.writes.size() == 1 && node.writes[0] >= 0) {
    const Attribute* const to = node.find("to");
    const auto whole = whole_of(0);
    if (whole != wholes_.end() && to != nullptr && to->integers == std::vector<Index>{kToFloat}) {
      items[node.writes[0]] = whole->second;
      return {};
    }
  }
  done = false;
  return {};
}

/// Ranges, bytes and levels are steps of their own: products read levels, and most often nothing reads bytes.
Status Builder::read_dynamic(const Network& network, const Node& node, Numbers& items) {
  const auto number_of = [&](int write) {
    if (write >= 0) return write;
    items.push_back(-1);
    return static_cast<int>(items.size()) - 1;
  };
  const int scale = number_of(node.writes[1]), zero = number_of(node.writes[2]);
  const Node range{"DynamicRange", node.name, node.reads, {scale, zero}, node.attributes};
  PENSTOCK_TRY(prepare(*find_own_operator(range.op), range, items));
  const std::vector<int> reads = {node.reads[0], scale, zero};
  int bytes = node.writes[0], levels = -1;
  PENSTOCK_TRY(add_step(network, node, "DynamicBytes", reads, node.attributes, items, bytes));
  PENSTOCK_TRY(add_step(network, node, "DynamicLevels", reads, node.attributes, items, levels));
  levels_[items[bytes]] = {items[zero], items[levels], items[node.reads[0]], items[scale], node.find("rows")};
  return {};
}

/// Adds a product and other integers, such as a bias, both as integers and as floats. Floats round numbers above 2^24.
Status Builder::read_whole_sum(const Network& network, const Node& node, Numbers& items) {
  PENSTOCK_TRY(prepare(*find_operator(node.op), node, items));
  std::vector<int> floats;
  for (const int read : node.reads) {
    const auto whole = wholes_.find(items[read]);
    if (whole != wholes_.end()) {
      floats.push_back(static_cast<int>(items.size()));
      items.push_back(whole->second);
      continue;
    }
    floats.push_back(-1);
    PENSTOCK_TRY(add_cast(network, node, read, kToFloat, items, floats.back()));
  }
  int sum = -1;
  PENSTOCK_TRY(add_step(network, node, "Add", floats, {}, items, sum));
  if (node.writes[0] >= 0) wholes_[items[node.writes[0]]] = items[sum];
  return {};
}

#endif

}  // namespace penstock::network
