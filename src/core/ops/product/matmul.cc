#include "ops/product/matmul.h"

#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <type_traits>

#include "backend/cpu/machine.h"
#include "backend/cpu/product_kernels.h"
#include "base/check.h"
#include "base/free_memory.h"
#include "base/threads.h"
#include "plan/cpu/pays_for_team.h"

namespace penstock::ops {
namespace {

/// oneDNN takes its threads from OpenMP; this lends it ours for one call.
class LendThreads {
 public:
  explicit LendThreads(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~LendThreads() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
  LendThreads(const LendThreads&) = delete;
  LendThreads& operator=(const LendThreads&) = delete;

 private:
  int before_;
};

/// Multiply-adds of a product that a thread should at least have ...
constexpr Index least_of_thread = Index{1} << 18, least_of_halves = Index{1} << 20;
/// ... and from which the library deals them out better, which may cut sums. It takes as many threads as suit it, and
/// so ends some that other ops have (run_parallel()): that is too dear for less.
constexpr Index much_of_thread = Index{1} << 22;

Index threads_worth(Index work, Index least, int threads) {
  if (!plan::pays_for_team(static_cast<double>(work) / cpu::machine().costs.multiply_adds)) return 1;
  return std::clamp<Index>(work / least, 1, threads);
}

void library_block(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b,
                   const ProductResult<float>& c) {
  const auto [m, n, k] = size;
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f, a.data,
                                          a.stride, b.data, b.stride, c.add ? 1.0f : 0.0f, c.data, c.stride);
  if (status != dnnl_success) {
    fail(ErrorCode::unsupported, "oneDNN refused a product of [{}, {}] by [{}, {}] with status {}", m, k, k, n,
         static_cast<int>(status));
  }
}

/// oneDNN crashes where it cannot have the memory for the code of its kernels.
void require_room_for_kernels() {
  constexpr std::size_t least = std::size_t{1} << 24;
  static const std::size_t left = free_memory();  // at the first product, which prepares most of them
  if (left == 0 || left >= least) return;
  fail(ErrorCode::out_of_memory, "{} kB of memory are free, and matrix products need {} MB (see 'ulimit -v')",
       left >> 10, least >> 20);
}

/// A part of 0..count-1 in whole tiles.
struct Tiles {
  Index count, parts;
  static constexpr Index tile = 16;

  Index all() const { return (count + tile - 1) / tile; }
  Index begin(Index part) const { return std::min(count, all() * part / parts * tile); }
};

/// A result in blocks, as many as are wanted as far as there are tiles.
struct Blocks {
  Tiles rows, columns;

  Blocks(Index m, Index n, Index wanted) : rows{m, 1}, columns{n, 1} {
    rows.parts = std::min(wanted, rows.all());
    columns.parts = std::min(wanted / rows.parts, columns.all());
  }
  Index count() const { return rows.parts * columns.parts; }

  /// Calls body(row, row_end, column, column_end) for each, on a thread each.
  template <class Body>
  void run(const Body& body) const {
    run_team(static_cast<int>(count()), [&](int thread, int team) {
      for (Index block = thread; block < count(); block += team) {
        const Index row = block / columns.parts, column = block % columns.parts;
        body(rows.begin(row), rows.begin(row + 1), columns.begin(column), columns.begin(column + 1));
      }
    });
  }
};

/// Multiplies by the library in blocks of the result, one for each thread with enough work.
void library_product(const ProductSize& size, const Matrix<float>& a, const Matrix<float>& b,
                     const ProductResult<float>& c, int threads) {
  require_room_for_kernels();
  const Index work = size.multiply_adds(), wanted = threads_worth(work, least_of_thread, threads);
  const Blocks blocks(size.m, size.n, wanted);
  if (wanted == 1 || work / threads >= much_of_thread || 2 * blocks.count() <= wanted) {
    const LendThreads lend(wanted == 1 ? 1 : threads);
    return library_block(size, a, b, c);
  }
  blocks.run([&](Index row, Index row_end, Index column, Index column_end) {
    const LendThreads alone(1);
    const Matrix<float> from{a.data + (a.transposed ? row : row * a.stride), a.stride, a.transposed};
    const Matrix<float> by{b.data + (b.transposed ? column * b.stride : column), b.stride, b.transposed};
    library_block({row_end - row, column_end - column, size.k}, from, by,
                  {c.data + row * c.stride + column, c.stride, c.add});
  });
}

/// Below that tiles are mostly empty, or packing takes longer than multiplying.
constexpr Index least_of_tiles = 32;

/// Multiplies by the instruction set's own kernel, in blocks of the result.
void tiled_product(const cpu::ProductKernels<float>& kernels, const ProductSize& size, const Matrix<float>& a,
                   const Matrix<float>& b, const ProductResult<float>& c, int threads) {
  cpu::MatrixProduct<float> product{
      .k = size.k, .a = a.data, .b = b.data, .c = c.data, .c_stride = c.stride, .adds = c.add};
  product.a_row = a.transposed ? 1 : a.stride;
  product.a_column = a.transposed ? a.stride : 1;
  product.b_row = b.transposed ? 1 : b.stride;
  product.b_column = b.transposed ? b.stride : 1;
  const Blocks blocks(size.m, size.n, threads_worth(size.multiply_adds(), least_of_halves, threads));
  blocks.run([&](Index row, Index row_end, Index column, Index column_end) {
    kernels.multiply(product, row, row_end, column, column_end);
  });
}

template <class Real>
void fixed_order_product(const ProductSize& size, const Matrix<Real>& a, const Matrix<Real>& b,
                         const ProductResult<Real>& c, int threads) {
  const Index m = size.m, n = size.n, k = size.k;
  const Real beta = c.add ? Real(1) : Real(0);
  const cpu::ProductKernels<Real> kernels = cpu::product_kernels<Real>();
  const auto least = static_cast<Index>(cpu::machine().costs.product_grain);  // multiply-adds of a thread
  const Index grain = std::max<Index>(1, least / std::max<Index>(1, n * k));
  threads = static_cast<int>(threads_worth(size.multiply_adds(), least, threads));
  if (b.transposed) {
    require(!a.transposed, "a product of two transposed matrices has no fixed-order kernel");
    parallel_for(threads, m, grain, [&](Index begin, Index end) {
      kernels.rows_times_rows(begin, end, n, k, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
    });
    return;
  }
  const Index a_row = a.transposed ? 1 : a.stride;
  const Index a_col = a.transposed ? a.stride : 1;
  parallel_for(threads, m, grain, [&](Index begin, Index end) {
    kernels.rows_times_columns(begin, end, n, k, a.data, a_row, a_col, b.data, b.stride, beta, c.data, c.stride);
  });
}

/// A few rows by a large matrix: bound by reading it, where a call into oneDNN costs more than it saves.
bool is_small(const ProductSize& size, bool a_transposed) {
  const plan::CpuCosts& costs = cpu::machine().costs;
  return !a_transposed && (static_cast<double>(size.m) <= costs.product_rows ||
                           static_cast<double>(size.multiply_adds()) < costs.library_product);
}

}  // namespace

template <class Real>
void matmul(const ProductSize& size, Matrix<Real> a, Matrix<Real> b, ProductResult<Real> c,
            const Execution& execution) {
  const auto [m, n, k] = size;
  if (m == 0 || n == 0) return;
  const int threads = resolve_threads(execution.threads);
  if constexpr (std::is_same_v<Real, float>) {
    if (!execution.exact && k > 0 && !is_small(size, a.transposed)) {
      const cpu::ProductKernels<float> kernels = cpu::product_kernels<float>();
      if (kernels.multiply != nullptr && std::min({m, n, k}) >= least_of_tiles) {
        return tiled_product(kernels, size, a, b, c, threads);
      }
      return library_product(size, a, b, c, threads);
    }
  }
  fixed_order_product(size, a, b, c, threads);
}

template <class Result>
void bf16_matmul(const ProductSize& size, Matrix<std::uint16_t> a, Matrix<std::uint16_t> b, ProductResult<Result> c,
                 const Execution& execution) {
  const auto [m, n, k] = size;
  if (m == 0 || n == 0 || k == 0) return;
  const int threads = resolve_threads(execution.threads);
  const LendThreads lend(threads_worth(size.multiply_adds(), least_of_halves, threads) == 1 ? 1 : threads);
  using dnnl::memory;
  const auto layout = [](Index rows, Index columns, const Matrix<std::uint16_t>& matrix) {
    const memory::dims strides = matrix.transposed ? memory::dims{1, matrix.stride} : memory::dims{matrix.stride, 1};
    return memory::desc({rows, columns}, memory::data_type::bf16, strides);
  };
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc a_layout = layout(m, k, a), b_layout = layout(k, n, b);
  constexpr auto c_type = std::is_same_v<Result, float> ? memory::data_type::f32 : memory::data_type::bf16;
  const memory::desc c_layout({m, n}, c_type, memory::dims{c.stride, 1});
  dnnl::primitive_attr attributes;
  if (c.add) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
  // oneDNN keeps primitives it has made before.
  const dnnl::matmul::primitive_desc description({a_layout, b_layout, c_layout}, attributes, engine);
  dnnl::stream stream(engine);
  // Arguments are not const in oneDNN's interface; sources are only read.
  const auto argument = [&](const memory::desc& of, const void* data) {
    return memory(of, engine, const_cast<void*>(data));
  };
  dnnl::matmul(description)
      .execute(stream, {{DNNL_ARG_SRC, argument(a_layout, a.data)},
                        {DNNL_ARG_WEIGHTS, argument(b_layout, b.data)},
                        {DNNL_ARG_DST, argument(c_layout, c.data)}});
  stream.wait();
}

template void matmul<float>(const ProductSize&, Matrix<float>, Matrix<float>, ProductResult<float>, const Execution&);
template void bf16_matmul<float>(const ProductSize&, Matrix<std::uint16_t>, Matrix<std::uint16_t>, ProductResult<float>,
                                 const Execution&);
template void bf16_matmul<std::uint16_t>(const ProductSize&, Matrix<std::uint16_t>, Matrix<std::uint16_t>,
                                         ProductResult<std::uint16_t>, const Execution&);
template void matmul<double>(const ProductSize&, Matrix<double>, Matrix<double>, ProductResult<double>,
                             const Execution&);

}  // namespace penstock::ops
