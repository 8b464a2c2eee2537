#include "nn/parameters.h"

#include <algorithm>
#include <new>

namespace penstock::nn {

namespace {

constexpr std::align_val_t cache_line{64};
constexpr Index floats_per_cache_line = 16;

}  // namespace

Index ParameterLayout::add(std::string name, std::vector<Index> shape, bool decay) {
  Index size = 1;
  for (const Index n : shape) size *= n;
  const Index offset = size_;
  entries_.push_back({std::move(name), std::move(shape), offset, size, decay, block_});
  count_ += size;
  size_ += (size + floats_per_cache_line - 1) / floats_per_cache_line * floats_per_cache_line;
  return offset;
}

template <class Real>
void Parameters<Real>::Free::operator()(Real* memory) const {
  ::operator delete[](memory, cache_line);
}

template <class Real>
std::unique_ptr<Real[], typename Parameters<Real>::Free> Parameters<Real>::allocate() const {
  const auto size = static_cast<std::size_t>(layout_.size());
  std::unique_ptr<Real[], Free> memory(static_cast<Real*>(::operator new[](size * sizeof(Real), cache_line)));
  std::fill_n(memory.get(), size, Real(0));
  return memory;
}

template <class Real>
Parameters<Real>::Parameters(ParameterLayout layout) : layout_(std::move(layout)), values_(allocate()) {}

template <class Real>
void Parameters<Real>::allocate_gradients() {
  if (!gradients_) gradients_ = allocate();
}

template <class Real>
void Parameters<Real>::zero_gradients() {
  std::ranges::fill(gradients(), Real(0));
}

template class Parameters<float>;
template class Parameters<double>;

}  // namespace penstock::nn
