#include "nn/model/parameters.h"

#include <algorithm>

namespace penstock::nn {

namespace {

constexpr Index floats_per_cache_line = 16;

}  // namespace

Index ParameterLayout::add(std::string name, std::vector<Index> shape, bool decay, Initial initial, DType dtype) {
  Index size = 1;
  for (const Index n : shape) size *= n;
  const Index offset = size_;
  entries_.push_back({std::move(name), std::move(shape), offset, size, decay, block_, std::move(initial), dtype});
  count_ += size;
  if (dtype == DType::i8) size = (size + 3) / 4;  // four in a float
  size_ += (size + floats_per_cache_line - 1) / floats_per_cache_line * floats_per_cache_line;
  return offset;
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

void copy_shared(const Parameters<float>& from, Parameters<float>& to) {
  for (const ParameterEntry& entry : to.layout().entries()) {
    const ParameterEntry* const same = from.layout().find(entry.name);
    if (same == nullptr || same->shape != entry.shape || same->dtype != entry.dtype) continue;
    if (entry.dtype == DType::i8) {
      std::ranges::copy(from.int8(*same), to.int8(entry).begin());
    } else {
      std::ranges::copy(from.value(*same), to.value(entry).begin());
    }
  }
  to.changed();
}

}  // namespace penstock::nn
