// Fp32 GEMMs on a CPU core, as a Markdown table: Penstock's kernels on each instruction set and oneDNN, in
// GFLOP/s, with the largest error of an element in units of the error of rounding each of its terms once.
//
//   product_times > products.md

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "backend/cpu/product_kernels.h"
#include "base/aligned.h"
#include "base/random.h"
#include "ops/product/matmul.h"
#include "penstock/system.h"

namespace penstock {
namespace {

using Floats = AlignedVector<float>;

Floats random_floats(Index count, std::uint64_t seed) {
  Random random(seed);
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

struct Shape {
  Index m, n, k;
};

/// c [M, N] = a b with element (m, k) of a at a[m * a_row + k * a_column], and b alike.
struct Operands {
  Shape shape;
  Index a_row, a_column, b_row, b_column;
  Floats a, b, c;
};

/// The largest error, in units of K epsilon of the sum of its terms' sizes; of every so many-th element.
double largest_error(const Operands& o) {
  const Index m = o.shape.m, n = o.shape.n, k = o.shape.k;
  const Index count = m * n, step = std::max<Index>(1, count / 997);
  double most = 0;
  for (Index i = 0; i < count; i += step) {
    double want = 0, sizes = 0;
    for (Index j = 0; j < k; ++j) {
      const double term = double{o.a[static_cast<std::size_t>(i / n * o.a_row + j * o.a_column)]} *
                          o.b[static_cast<std::size_t>(j * o.b_row + i % n * o.b_column)];
      want += term;
      sizes += std::abs(term);
    }
    most = std::max(most, std::abs(o.c[static_cast<std::size_t>(i)] - want) / (1.1920929e-7 * sizes));
  }
  return most;
}

/// Median Gflop/s of calls that last a fifth of a second together.
template <class Call>
double rate(const Shape& shape, const Call& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::vector<double> seconds;
  for (double total = 0; total < 0.2 || seconds.size() < 5; total += seconds.back()) {
    const auto start = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return 2e-9 * static_cast<double>(shape.m * shape.n * shape.k) / seconds[seconds.size() / 2];
}

std::string cell(double gflops, const Operands& o) {
  return fmt::format(" {:.0f} ({:.1f}) |", gflops, largest_error(o));
}

/// Gradients of weights: a and b [K rows, ..], c += a^T b. Summed once for the check.
std::string summed_over_rows(Operands& o) {
  const cpu::ProductKernels<float> kernels = cpu::product_kernels<float>();
  const Index m = o.shape.m, n = o.shape.n, k = o.shape.k;
  std::vector<const float*> rows;
  for (Index i = 0; i < k; ++i) rows.push_back(o.b.data() + i * n);
  cpu::TransposedProduct<float> product;
  product.rows = k;
  product.a = o.a.data();
  product.a_stride = m;
  product.factors[0] = {rows.data(), 0, n, o.c.data(), n, 0};
  Floats scratch(static_cast<std::size_t>(kernels.transposed_scratch(n, 0)));
  const auto call = [&] { kernels.add_transposed(product, 0, m, scratch.data()); };
  const double gflops = rate(o.shape, call);
  std::fill(o.c.begin(), o.c.end(), 0.0f);
  call();
  return cell(gflops, o);
}

/// Rows by a matrix that is packed once.
std::string by_packed(Operands& o) {
  const cpu::ProductKernels<float> kernels = cpu::product_kernels<float>();
  const Index m = o.shape.m, n = o.shape.n, k = o.shape.k;
  Floats panels(kernels.product_panels(k, n));
  kernels.pack_product_panels(k, n, o.b.data(), n, panels.data());
  std::vector<float*> rows;
  for (Index i = 0; i < m; ++i) rows.push_back(o.c.data() + i * n);
  cpu::PanelProduct<float> product;
  product.a = o.a.data();
  product.a_stride = k;
  product.inner = k;
  product.columns = n;
  product.panels = panels.data();
  product.c_row = rows.data();
  const double gflops = rate(o.shape, [&] { kernels.rows_times_panels(product, 0, m); });
  return cell(gflops, o);
}

/// The product of any matrices, which is oneDNN's where a set has none.
std::string of_matrices(Operands& o) {
  const Index m = o.shape.m, n = o.shape.n, k = o.shape.k;
  const ops::Matrix<float> a{o.a.data(), std::max(o.a_row, o.a_column), o.a_row == 1};
  const ops::Matrix<float> b{o.b.data(), std::max(o.b_row, o.b_column), o.b_row == 1};
  const Execution execution{.threads = 1};
  const double gflops = rate(o.shape, [&] { ops::matmul<float>({m, n, k}, a, b, {o.c.data(), n}, execution); });
  return cell(gflops, o);
}

Operands operands(Shape shape, bool a_transposed, bool b_transposed) {
  const Index m = shape.m, n = shape.n, k = shape.k;
  return {shape,
          a_transposed ? 1 : k,
          a_transposed ? m : 1,
          b_transposed ? 1 : n,
          b_transposed ? k : 1,
          random_floats(m * k, 1),
          random_floats(k * n, 2),
          Floats(static_cast<std::size_t>(m * n))};
}

template <class Measure>
void print_row(const char* name, Shape shape, bool a_transposed, bool b_transposed, const Measure& measure) {
  fmt::print("| {} | {} x {} x {} |", name, shape.m, shape.n, shape.k);
  for (const std::string& isa : system_info().isas) {
    if (isa == "baseline") continue;
    select_isa(isa);
    Operands o = operands(shape, a_transposed, b_transposed);
    fmt::print("{}", measure(o));
  }
  fmt::print("\n");
}

void print_table() {
  fmt::print("| product, one thread: Gflop/s (error) | M x N x K |");
  std::string line = "|---|---|";
  for (const std::string& isa : system_info().isas) {
    if (isa == "baseline") continue;
    fmt::print(" {} |", isa);
    line += "---|";
  }
  fmt::print("\n{}\n", line);
  for (const Shape shape : {Shape{256, 64, 512}, {256, 128, 4096}, {1024, 256, 4096}, {257, 65, 511}}) {
    print_row("gradients of weights, a^T b", shape, true, false, summed_over_rows);
  }
  for (const Shape shape : {Shape{512, 64, 256}, {512, 256, 1024}, {2048, 512, 2048}, {509, 65, 257}}) {
    print_row("by packed weights", shape, false, false, by_packed);
  }
  for (const Shape shape : {Shape{4096, 256, 128}, {4096, 512, 512}, {1024, 1024, 1024}}) {
    print_row("matrices, a b^T", shape, false, true, of_matrices);
    print_row("matrices, a b", shape, false, false, of_matrices);
  }
  for (const Shape shape : {Shape{256, 128, 4096}, {512, 512, 4096}}) {
    print_row("matrices, a^T b", shape, true, false, of_matrices);
  }
}

}  // namespace
}  // namespace penstock

int main() {
  penstock::print_table();
  return 0;
}
