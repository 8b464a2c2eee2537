#include "nn/model/parameters.h"

#include <algorithm>

#include "ops/product/linear.h"

namespace penstock::nn {

namespace {

constexpr Index floats_per_cache_line = 16;

Index product(std::span<const Index> extents) {
  Index size = 1;
  for (const Index n : extents) size *= n;
  return size;
}

ops::Linear panel_shape(std::span<const Index> matrix) {
  return {matrix.back(), product(matrix.first(matrix.size() - 1)), true};
}

}  // namespace

Index ParameterLayout::append(ParameterEntry entry, Index floats) {
  entry.offset = size_;
  entry.block = block_;
  entries_.push_back(std::move(entry));
  size_ += (floats + floats_per_cache_line - 1) / floats_per_cache_line * floats_per_cache_line;
  return entries_.back().offset;
}

Index ParameterLayout::add(std::string name, std::vector<Index> shape, bool decay, Initial initial) {
  const Index size = product(shape);
  count_ += size;
  return append(
      {.name = std::move(name), .shape = std::move(shape), .size = size, .decay = decay, .initial = std::move(initial)},
      size);
}

ParameterLayout::Int8Entries ParameterLayout::add_int8(const std::string& name, std::vector<Index> shape, bool panels) {
  const Index size = product(shape);
  const std::vector<Index> rows(shape.begin(), shape.end() - 1);
  Int8Entries made;
  made.rows = product(rows);
  made.floats = panels ? ops::int8_panel_floats(panel_shape(shape)) : (size + 3) / 4;  // four in a float
  count_ += size;
  made.values = append({.name = name, .shape = std::move(shape), .size = size, .dtype = DType::i8, .panels = panels},
                       made.floats);
  made.scales = append({.name = name + ".scale", .shape = rows, .size = made.rows}, made.rows);
  return made;
}

const ParameterEntry* ParameterLayout::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &ParameterEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

template <class Real>
Parameters<Real>::Parameters(ParameterLayout layout)
    : layout_(std::move(layout)),
      weights_(std::make_shared<graph::Weights>(std::make_shared<ops::Queue>(Device::cpu()),
                                                static_cast<std::size_t>(layout_.size()) * sizeof(Real))) {}

template <class Real>
void Parameters<Real>::part_from_readers() {
  if (weights_.use_count() == 1) return;
  auto own = std::make_shared<graph::Weights>(weights_->shared_queue(), weights_->values().bytes());
  own->values().upload(weights_->values().data(), weights_->values().bytes());
  weights_ = std::move(own);
}

template class Parameters<float>;
template class Parameters<double>;

std::vector<std::int8_t> int8_rows(const Parameters<float>& parameters, const ParameterEntry& entry) {
  require(entry.dtype == DType::i8, "parameter {} is of {}, not of i8", entry.name, to_string(entry.dtype));
  std::vector<std::int8_t> rows(static_cast<std::size_t>(entry.size));
  const float* const memory = parameters.values().data() + entry.offset;
  if (entry.panels) {
    ops::unpack_int8(panel_shape(entry.shape), memory, rows.data());
  } else {
    std::copy_n(reinterpret_cast<const std::int8_t*>(memory), rows.size(), rows.begin());
  }
  return rows;
}

void set_int8_rows(Parameters<float>& parameters, const ParameterEntry& entry, std::span<const std::int8_t> rows,
                   std::span<const float> scales) {
  float* const memory = parameters.values().data() + entry.offset;
  if (entry.panels) {
    ops::pack_int8(panel_shape(entry.shape), rows.data(), scales.data(), memory);
  } else {
    std::ranges::copy(rows, reinterpret_cast<std::int8_t*>(memory));
  }
  std::ranges::copy(scales, parameters.value(*parameters.layout().find(entry.name + ".scale")).begin());
}

void copy_shared(const Parameters<float>& from, Parameters<float>& to) {
  for (const ParameterEntry& entry : to.layout().entries()) {
    const ParameterEntry* const same = from.layout().find(entry.name);
    if (same == nullptr || same->shape != entry.shape || same->dtype != entry.dtype) continue;
    if (entry.dtype == DType::i8) {
      set_int8_rows(to, entry, int8_rows(from, *same), from.value(*from.layout().find(entry.name + ".scale")));
    } else {
      std::ranges::copy(from.value(*same), to.value(entry).begin());
    }
  }
  to.changed();
}

}  // namespace penstock::nn
