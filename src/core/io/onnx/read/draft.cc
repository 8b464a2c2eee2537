#include "io/onnx/read/draft.h"

#include <algorithm>
#include <cmath>

#include "io/onnx/read/tensor.h"

namespace penstock::io::onnx {

void Draft::set_read(std::size_t i, int value) {
  if (node.reads.size() <= i) node.reads.resize(i + 1, -1);
  node.reads[i] = value;
}

const network::Constant* Draft::known(int value) const {
  const int number = value < 0 ? -1 : network_.values[static_cast<std::size_t>(value)].constant;
  return number < 0 ? nullptr : &network_.constants[static_cast<std::size_t>(number)];
}

network::Attribute Draft::take(std::string_view name) {
  const auto found = std::ranges::find(node.attributes, name, &network::Attribute::name);
  if (found == node.attributes.end()) return {};
  network::Attribute taken = std::move(*found);
  node.attributes.erase(found);
  return taken;
}

Index Draft::take_integer(std::string_view name, Index otherwise) {
  const network::Attribute taken = take(name);
  if (taken.name.empty()) return otherwise;
  if (taken.integers.size() != 1) refuse(ErrorCode::bad_input, "its attribute {} is not an integer", name);
  return taken.integers.front();
}

void Draft::set(std::string_view name, std::vector<Index> integers) {
  take(name);
  node.attributes.push_back({.name = std::string(name), .integers = std::move(integers)});
}

int Draft::value() {
  const auto value = static_cast<int>(network_.values.size());
  network_.values.push_back({.name = fmt::format("{}.{}", node.name, value)});
  return value;
}

int Draft::constant(network::Constant constant) {
  const auto value = static_cast<int>(network_.values.size());
  network_.values.push_back({.name = fmt::format("{}.{}", node.name, value),
                             .type = constant.type,
                             .shape = constant.shape,
                             .constant = static_cast<int>(network_.constants.size())});
  network_.constants.push_back(std::move(constant));
  return value;
}

int Draft::integers(std::span<const Index> values) {
  return constant(make_integers({static_cast<Index>(values.size())}, values));
}

int Draft::integer(Index value) { return constant(make_integers({}, std::span(&value, 1))); }

int Draft::number(float value) { return constant(make_number(value)); }

int Draft::apply(std::string_view op, std::vector<int> reads, std::vector<network::Attribute> attributes) {
  const int value = this->value();
  add(op, std::move(reads), {value}, std::move(attributes));
  return value;
}

void Draft::add(std::string_view op, std::vector<int> reads, std::vector<int> writes,
                std::vector<network::Attribute> attributes) {
  for (const network::Attribute& attribute : attributes) {
    if (!std::ranges::all_of(attribute.numbers, [](float each) { return std::isfinite(each); })) {
      refuse(ErrorCode::bad_input, "its attribute {} is not finite", attribute.name);
    }
  }
  network_.nodes.push_back({.op = std::string(op),
                            .name = node.name,
                            .reads = std::move(reads),
                            .writes = std::move(writes),
                            .attributes = std::move(attributes)});
}

void Draft::finish() {
  std::vector<network::Network> bodies = std::move(node.bodies);
  add(node.op, std::move(node.reads), std::move(node.writes), std::move(node.attributes));
  network_.nodes.back().bodies = std::move(bodies);
}

}  // namespace penstock::io::onnx
