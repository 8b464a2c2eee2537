#include "nn/model/initialise.h"

#include <algorithm>

#include "base/random.h"
#include "nn/model/gate_bias.h"

namespace penstock::nn {

namespace {

template <class Real>
void fill(const ParameterEntry& entry, Real* values, Random& random) {
  const Initial& initial = entry.initial;
  switch (initial.kind) {
    case Initial::Kind::constant:
      std::fill_n(values, entry.size, static_cast<Real>(initial.amount));
      break;
    case Initial::Kind::normal:
      for (Index i = 0; i < entry.size; ++i) values[i] = static_cast<Real>(initial.amount * random.normal());
      break;
    case Initial::Kind::uniform:
      for (Index i = 0; i < entry.size; ++i) {
        values[i] = static_cast<Real>(random.uniform(-initial.amount, initial.amount));
      }
      break;
    case Initial::Kind::pass_through: {
      const Index width = entry.shape.back();
      for (Index i = 0; i < entry.size; ++i) {
        values[i] = static_cast<Real>((i < width ? 1.0 : 0.0) + random.uniform(-initial.amount, initial.amount));
      }
      break;
    }
    case Initial::Kind::gate_bias:
      std::fill_n(values, entry.size, Real(0));
      add_gate_bias(initial.cell, static_cast<Index>(initial.amount), values);
      break;
  }
}

}  // namespace

template <class Real>
void initialise(const ParameterLayout& layout, Real* values, std::uint64_t seed) {
  Random random(seed);
  for (const ParameterEntry& entry : layout.entries()) fill(entry, values + entry.offset, random);
}

template void initialise<float>(const ParameterLayout&, float*, std::uint64_t);
template void initialise<double>(const ParameterLayout&, double*, std::uint64_t);

}  // namespace penstock::nn
