#include "nn/dropout.h"

#include <cmath>

#include "base/counter_random.h"
#include "nn/elementwise.h"

namespace penstock::nn {

namespace {

/// visit(i, kept) for every place of begin..end-1.
template <class Visit>
void visit_mask(const Pass& pass, std::uint64_t site, double probability, Index begin, Index end, Visit visit) {
  const counter_random::Word key = counter_random::key_of(pass.dropout_seed, site);
  const auto threshold = static_cast<unsigned>(std::ldexp(probability, 32));
  for (Index i = begin; i < end; ++i) {
    visit(i, counter_random::keeps(key, static_cast<counter_random::Word>(i), threshold));
  }
}

}  // namespace

template <class Real>
void Dropout::add(const Pass& pass, Index n, const Real* x, const Real* branch, Real* y) const {
  if (!active(pass)) {
    nn::add(pass.execution, n, x, branch, y);
    return;
  }
  const Real scale = static_cast<Real>(1.0 / (1.0 - probability_));
  for_rows(pass.execution, n, 4, [&](Index begin, Index end) {
    visit_mask(pass, site_, probability_, begin, end,
               [&](Index i, bool kept) { y[i] = kept ? x[i] + scale * branch[i] : x[i]; });
  });
}

template <class Real>
void Dropout::backward(const Pass& pass, Index n, const Real* dy, Real* dbranch) const {
  const Real scale = static_cast<Real>(1.0 / (1.0 - probability_));
  for_rows(pass.execution, n, 4, [&](Index begin, Index end) {
    visit_mask(pass, site_, probability_, begin, end,
               [&](Index i, bool kept) { dbranch[i] = kept ? scale * dy[i] : Real(0); });
  });
}

template void Dropout::add<float>(const Pass&, Index, const float*, const float*, float*) const;
template void Dropout::add<double>(const Pass&, Index, const double*, const double*, double*) const;
template void Dropout::backward<float>(const Pass&, Index, const float*, float*) const;
template void Dropout::backward<double>(const Pass&, Index, const double*, double*) const;

}  // namespace penstock::nn
