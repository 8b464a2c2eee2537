#include "network/contraction.h"

#include <algorithm>
#include <cstring>

namespace penstock::network {

namespace {

using Letters = std::vector<Letter>;

Letters some(const Letters& letters, bool in_a, bool in_b, bool in_c) {
  Letters chosen;
  for (const Letter& letter : letters) {
    if (letter.in_a == in_a && letter.in_b == in_b && letter.in_c == in_c) chosen.push_back(letter);
  }
  return chosen;
}

Index extent_of(const Letters& letters) {
  Index extent = 1;
  for (const Letter& letter : letters) extent *= letter.extent;
  return extent;
}

/// The stride at which letters follow each other as if they were one, or 0.
Index stride_of(const Letters& letters, Index Letter::*stride) {
  StridedLoop loop;
  for (const Letter& letter : letters) loop.add(letter.extent, {letter.*stride, 0, 0, 0});
  return loop.axes() == 0 ? 1 : loop.axes() > 1 ? 0 : loop.inner_stride(0);
}

Letters joined(Letters first, const Letters& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

/// A loop that copies a tensor (1) to one whose letters lie in this order (0), which the letters then move in.
StridedLoop in_order(Letters& letters, Index Letter::*stride, bool backwards) {
  StridedLoop loop;
  Index own = extent_of(letters);
  for (Letter& letter : letters) {
    own = letter.extent == 0 ? 0 : own / letter.extent;
    backwards ? loop.add(letter.extent, {letter.*stride, own, 0, 0})
              : loop.add(letter.extent, {own, letter.*stride, 0, 0});
    letter.*stride = own;
  }
  return loop;
}

/// Gives letters the strides that a copy of them has.
void take(Letters& letters, const Letters& all, std::size_t first, Index Letter::*stride) {
  for (std::size_t i = 0; i < letters.size(); ++i) letters[i].*stride = all[first + i].*stride;
}

enum Copies : std::size_t { kOuter, kOfA, kOfB, kOfC };
enum Scratches : std::size_t { kHasA, kHasB, kHasC, kAtB, kAtC, kBatch };

/// Multiplies the rows of a job, and applies the step's ending to them.
void multiply(const Step& step, const Memory& memory, Product& job) {
  if (!step.bias.empty()) job.column_bias = step.bias.data();
  memory.kernels.multiply(job);
  if (step.ending.op == Unary::none) return;
  for (Index row = 0; row < job.rows; ++row) {
    float* const y = job.c + row * job.c_stride;
    memory.kernels.unary(step.ending.op, job.columns, y, y, step.ending.alpha, step.ending.beta);
  }
}

/// Rows that lie evenly, times constants: small networks spend little on anything else.
void run_rows(const Step& step, const Memory& memory) {
  Product job = step.product;
  job.a = step.floats(0, memory), job.b = step.packed.data(), job.c = step.result(0, memory);
  multiply(step, memory, job);
}

/// loops: the rows of c, a and b that belong together; then the copies that come before and after. n: which there are,
/// where they lie in the scratch, and 1 if rows may run together.
void run_contraction(const Step& step, const Memory& memory) {
  Product job = step.product;
  float* spare = step.spare(memory);
  const auto bytes = [](const float* x) { return reinterpret_cast<const std::byte*>(x); };
  const auto copied = [&](Copies loop, const float* from, float* to) {
    copy(step.loops[loop], sizeof(float), bytes(from), reinterpret_cast<std::byte*>(to));
    return to;
  };
  const float *a = step.floats(0, memory), *b = step.packed.empty() ? step.floats(1, memory) : step.packed.data();
  if (step.n[kHasA] != 0) a = copied(kOfA, a, spare);
  if (step.n[kHasB] != 0) b = copied(kOfB, b, spare + step.n[kAtB]);
  float* c = step.n[kHasC] != 0 ? spare + step.n[kAtC] : step.result(0, memory);
  const StridedLoop& outer = step.loops[kOuter];
  const bool together = step.n[kBatch] == 0;
  outer.rows([&](const StridedLoop::Strides& at) {
    job.rows = together ? outer.inner() : 1;
    job.a_stride = outer.inner_stride(1), job.c_stride = outer.inner_stride(0);
    for (Index i = 0; i < (together ? 1 : outer.inner()); ++i) {
      job.a = a + at[1] + i * outer.inner_stride(1);
      job.b = b + at[2] + i * outer.inner_stride(2);
      job.c = c + at[0] + i * outer.inner_stride(0);
      multiply(step, memory, job);
    }
  });
  if (step.n[kHasC] != 0) copied(kOfC, c, step.result(0, memory));
}

/// Takes a gain and a shift of each column into panels and bias.
bool absorb_columns(Step& step, Index channels, const float* gain, const float* shift) {
  const Index columns = step.product.columns, inner = step.product.inner, panel = step.n.back();
  if (channels != columns || step.product.b_column != inner || step.packed.empty()) return false;
  step.bias.resize(static_cast<std::size_t>(columns));
  for (Index n = 0; n < columns; ++n) {
    step.bias[n] = step.bias[n] * gain[n] + shift[n];
    float* column = step.packed.own().data() + n / panel * panel * inner + n % panel;
    for (Index k = 0; k < inner; ++k) column[k * panel] *= gain[n];
  }
  return true;
}

}  // namespace

void pack_panels(const float* b, Index inner, Index columns, const StridedLoop& by_row, Index panel, float scale,
                 AlignedVector<float>& packed) {
  packed.assign(static_cast<std::size_t>((columns + panel - 1) / panel * panel * inner), 0.0f);
  Index at = 0;  // in b [inner, columns], row-major
  by_row.rows([&](const StridedLoop::Strides& from) {
    for (Index i = 0; i < by_row.inner(); ++i, ++at) {
      const Index k = at / columns, n = at % columns;
      packed[n / panel * panel * inner + k * panel + n % panel] = scale * b[from[1] + i * by_row.inner_stride(1)];
    }
  });
}

[[gnu::cold]] void contract(Preparation& p, const Letters& letters, const float* known, float scale) {
  Letters batch = some(letters, true, true, true), left = some(letters, true, false, true);
  Letters right = some(letters, false, true, true), over = some(letters, true, true, false);
  Step& step = p.run(&run_contraction);
  step.n.assign(6, 0);
  step.loops.resize(4);
  const std::size_t batches = batch.size(), lefts = left.size();
  Index scratch = 0;
  const Letters by_columns = joined(joined(batch, left), right);

  if (stride_of(over, &Letter::a) != 1) {
    Letters all = joined(joined(batch, left), over);
    step.loops[kOfA] = in_order(all, &Letter::a, false);
    take(batch, all, 0, &Letter::a), take(left, all, batches, &Letter::a), take(over, all, batches + lefts, &Letter::a);
    step.n[kHasA] = 1;
    scratch = (extent_of(all) + 15) / 16 * 16;
  }

  Product& product = step.product;
  product.inner = extent_of(over), product.columns = extent_of(right);
  product.b_row = stride_of(over, &Letter::b);
  Letters of_b = joined(joined(batch, over), right);
  if (known != nullptr && batch.empty()) {
    const Index panel = product.columns == 1 ? 1 : p.kernels().panel_columns;  // a column lies in one piece
    pack_panels(known, product.inner, product.columns, in_order(of_b, &Letter::b, false), panel, scale,
                step.packed.own());
    product.b_row = panel, product.b_column = product.inner;
    step.absorb = &absorb_columns;
    step.absorbs_columns = true;
    step.n.push_back(panel);
    scale = 1;
  } else if (known != nullptr || product.b_row == 0 || stride_of(right, &Letter::b) != 1) {
    const StridedLoop loop = in_order(of_b, &Letter::b, false);
    take(batch, of_b, 0, &Letter::b);
    product.b_row = product.columns;
    if (known != nullptr) {
      step.packed.own().resize(static_cast<std::size_t>(extent_of(of_b)));
      copy(loop, sizeof(float), reinterpret_cast<const std::byte*>(known),
           reinterpret_cast<std::byte*>(step.packed.own().data()));
    } else {
      step.loops[kOfB] = loop;
      step.n[kHasB] = 1, step.n[kAtB] = scratch;
      scratch += (extent_of(of_b) + 15) / 16 * 16;
    }
  }

  if (stride_of(right, &Letter::c) != 1) {
    Letters all = by_columns;
    step.loops[kOfC] = in_order(all, &Letter::c, true);
    take(batch, all, 0, &Letter::c), take(left, all, batches, &Letter::c);
    step.n[kHasC] = 1, step.n[kAtC] = scratch;
    scratch += extent_of(all);
  }
  for (const Letter& letter : joined(batch, left))
    step.loops[kOuter].add(letter.extent, {letter.c, letter.a, letter.b, 0});
  const StridedLoop& outer = step.loops[kOuter];
  step.n[kBatch] = outer.axes() > 0 && outer.inner_stride(2) != 0 ? 1 : 0;
  if (scratch == 0 && !step.packed.empty() && step.n[kBatch] == 0 && outer.axes() < 2 && !outer.empty()) {
    step.run = &run_rows;
    step.is_column = product.columns == 1;
    product.rows = outer.inner(), product.a_stride = outer.inner_stride(1), product.c_stride = outer.inner_stride(0);
  }
  if (scale != 1) step.ending = {Unary::affine, scale, 0};
  step.takes_ending = scale == 1;
  step.scratch_bytes = static_cast<std::size_t>(scratch) * sizeof(float);
}

}  // namespace penstock::network
