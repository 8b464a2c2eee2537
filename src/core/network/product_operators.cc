// Products of two matrices: MatMul and Gemm.

#include <algorithm>
#include <utility>

#include "network/contraction.h"
#include "network/preparation.h"

namespace penstock::network {

namespace {

constexpr std::initializer_list<Type> kFloat = {Type::f32};

Status prepare_matmul(Preparation& p) {
  PENSTOCK_TRY(p.only(0, kFloat));
  PENSTOCK_TRY(p.only(1, kFloat));
  if (p.rank(0) == 0 || p.rank(1) == 0) return p.refuse("an input is a single number");
  Shape a = p.shape(0), b = p.shape(1);
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  const Index inner = a.back(), rows = a[a.size() - 2], columns = b.back();
  Shape batch;
  if (inner != b[b.size() - 2] || !broadcast({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, batch)) {
    return p.refuse("shapes " + text_of(p.shape(0)) + " and " + text_of(p.shape(1)) + " cannot be multiplied");
  }
  Shape shape = batch;
  if (p.rank(0) > 1) shape.push_back(rows);
  if (p.rank(1) > 1) shape.push_back(columns);
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  const Shape strides_a = broadcast_strides({a.begin(), a.end() - 2}, batch);
  const Shape strides_b = broadcast_strides({b.begin(), b.end() - 2}, batch), strides_c = strides_of(batch);
  std::vector<Letter> letters;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i] == 1) continue;
    const Index of_a = strides_a[i] * rows * inner, of_b = strides_b[i] * inner * columns;
    // Where only the second tensor has this axis, the first is read again for each.
    letters.push_back({batch[i], of_a, of_b, strides_c[i] * rows * columns, true, of_b != 0, true});
  }
  letters.push_back({rows, inner, 0, columns, true, false, true});
  letters.push_back({inner, 1, columns, 0, true, true, false});
  letters.push_back({columns, 0, 1, 1, false, true, true});
  contract(p, letters, p.known_floats(1));
  return {};
}

/// Adds beta times read 2, of any shape that fits, to the product.
void run_gemm(const Step& step, const Memory& memory) {
  step.first(step, memory);
  float* y = step.result(0, memory);
  const StridedLoop& loop = step.loops.back();
  loop.rows([&](const StridedLoop::Strides& at) {
    float* row = y + at[0];
    const float* c = step.floats(2, memory) + at[1];
    for (Index i = 0; i < loop.inner(); ++i) row[i] += step.f[0] * c[i * loop.inner_stride(1)];
  });
}

Status prepare_gemm(Preparation& p) {
  for (std::size_t i = 0; i < p.reads(); ++i) PENSTOCK_TRY(p.only(i, kFloat));
  if (p.rank(0) != 2 || p.rank(1) != 2) return p.refuse("its inputs must be matrices");
  const bool turned_a = p.integer("transA", 0) != 0, turned_b = p.integer("transB", 0) != 0;
  const Index rows = p.extent(0, turned_a ? 1 : 0), inner = p.extent(0, turned_a ? 0 : 1);
  const Index columns = p.extent(1, turned_b ? 0 : 1);
  if (inner != p.extent(1, turned_b ? 1 : 0)) {
    return p.refuse("shapes " + text_of(p.shape(0)) + " and " + text_of(p.shape(1)) + " cannot be multiplied");
  }
  const Shape shape = {rows, columns};
  if (Shape both; p.has(2) && (!broadcast(shape, p.shape(2), both) || both != shape)) {
    return p.refuse("shape " + text_of(p.shape(2)) + " cannot be added to " + text_of(shape));
  }
  PENSTOCK_TRY(p.write(0, Type::f32, shape));
  contract(p,
           {{rows, turned_a ? 1 : inner, 0, columns, true, false, true},
            {inner, turned_a ? rows : 1, turned_b ? 1 : columns, 0, true, true, false},
            {columns, 0, turned_b ? inner : 1, 1, false, true, true}},
           p.known_floats(1), p.number("alpha", 1));
  if (!p.has(2)) return {};
  Step& step = p.step;
  const float beta = p.number("beta", 1);
  const bool per_column = p.rank(2) == 1 || (p.rank(2) == 2 && p.extent(2, 0) == 1);
  if (p.known(2) != nullptr && per_column && p.extent(2, -1) == columns && step.takes_ending) {
    step.bias.assign(p.known_floats(2), p.known_floats(2) + columns);
    for (float& bias : step.bias) bias *= beta;
    return {};
  }
  step.takes_ending = false;
  step.first = std::exchange(step.run, &run_gemm);
  step.absorb = nullptr;
  step.f = {beta};
  step.loops.push_back(broadcast_loop(shape, p.shape(2)));
  return {};
}

}  // namespace

Operators product_operators() {
  static constexpr Operator operators[] = {
      {"MatMul", prepare_matmul, 2, 2},
      {"Gemm", prepare_gemm, 2, 3},
  };
  return operators;
}

}  // namespace penstock::network
