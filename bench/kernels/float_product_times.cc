// Times of fp32 GEMMs on a GPU: the best plan of each algorithm of ours, and cuBLASLt's plain floats, each checked in
// the same run:
//   cuda_float_product_times [--all] M,N,K[,FORM ...]    FORM: at (A lies as [K, M]), bt (B as [N, K]), bias, sums (of
//                                                        A over K), add (to D), unfitR (R rows of A with a float that
//                                                        no pair of float16 keeps)
// --all: all shapes of blocks of the algorithm "pairs". The error is the largest of four rows of D, in units of 2^-24
// of the sum of the products' sizes. A wrong result prints no time, and the program exits with status 1.

#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "backend/cuda/product/float_product.h"
#include "base/check.h"
#include "bench/kernels/measure.h"

namespace {

using namespace penstock;               // NOLINT(google-build-using-namespace)
using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)

struct Case {
  ProductShape shape;
  bool add = false;
  int unfit = 0;
};

Case parse(const std::string& text) {
  Case c;
  std::istringstream words(text);
  std::string word;
  std::vector<std::string> all;
  while (std::getline(words, word, ',')) all.push_back(word);
  require(all.size() >= 3, "CASE must be M,N,K[,FORM ...], not '{}'", text);
  ProductShape& shape = c.shape;
  shape.m = std::stoll(all[0]), shape.n = std::stoll(all[1]), shape.k = std::stoll(all[2]);
  for (std::size_t i = 3; i < all.size(); ++i) {
    if (all[i] == "at") shape.a_transposed = true;
    if (all[i] == "bt") shape.b_transposed = true;
    if (all[i] == "bias") shape.epilogue = Epilogue::add_bias;
    if (all[i] == "sums") shape.epilogue = Epilogue::sum_columns;
    if (all[i] == "add") c.add = true;
    if (all[i].starts_with("unfit")) c.unfit = std::stoi(all[i].substr(5));
  }
  shape.a_stride = shape.a_transposed ? shape.m : shape.k;
  shape.b_stride = shape.b_transposed ? shape.k : shape.n;
  shape.d_stride = shape.n;
  shape.a_alignment = shape.b_alignment = shape.d_alignment = 256;
  return c;
}

/// The matrices of a case, and what D and the sums must be.
class Matrices {
 public:
  Matrices(const Case& c, Stream& stream)
      : c_(c),
        stream_(stream),
        a_values_(random_pattern(1, -1, 1, Storage::f32)),
        b_values_(random_pattern(2, -1, 1, Storage::f32)),
        d_values_(random_pattern(3, -1, 1, Storage::f32)),
        a_(tensor(stream, c.shape.m * c.shape.k, a_values_, Storage::f32)),
        b_(tensor(stream, c.shape.k * c.shape.n, b_values_, Storage::f32)),
        d_(tensor(stream, c.shape.m * c.shape.n, d_values_, Storage::f32)),
        vector_(tensor(stream, std::max(c.shape.m, c.shape.n), d_values_, Storage::f32)) {
    for (int i = 0; i < c.unfit; ++i) {
      const DeviceAddress at = a_.address() + static_cast<DeviceAddress>(4 * place_of_a(unfit_row(i), 0));
      stream.device().upload(at, &kTiny, sizeof kTiny, stream.handle());
    }
  }

  template <class Engine>
  void run(const Engine& engine, const Buffer& workspace) const {
    engine.run(a_.address(), b_.address(), d_.address(), vector_.address(), workspace.address(), stream_.handle(),
               c_.add);
  }

  /// Returns the largest error of four rows after a run from fresh memory.
  template <class Engine>
  double error(const Engine& engine, const Buffer& workspace) {
    d_ = tensor(stream_, c_.shape.m * c_.shape.n, d_values_, Storage::f32);
    if (!c_.add) d_.fill(0xff);
    if (c_.shape.epilogue == Epilogue::sum_columns) vector_.fill(0xff);
    run(engine, workspace);
    double worst = 0;
    for (const Index row : {Index{0}, c_.shape.m / 3, c_.shape.m / 2, c_.shape.m - 1}) {
      const double of_row = error_of(row);
      worst = of_row <= worst ? worst : of_row;  // NaN stays
    }
    return worst;
  }

 private:
  static constexpr float kTiny = 0x1p-60F;

  Index unfit_row(int i) const { return c_.shape.m / c_.unfit * i; }
  Index place_of_a(Index row, Index k) const {
    return c_.shape.a_transposed ? k * c_.shape.a_stride + row : row * c_.shape.a_stride + k;
  }
  double a_at(Index row, Index k) const {
    if (k == 0 && c_.unfit > 0 && row % (c_.shape.m / c_.unfit) == 0 && row / (c_.shape.m / c_.unfit) < c_.unfit) {
      return static_cast<double>(kTiny);
    }
    return a_values_.at(place_of_a(row, k));
  }

  double error_of(Index row) const {
    const ProductShape& shape = c_.shape;
    const auto columns = static_cast<std::size_t>(shape.n);
    std::vector<double> want(columns), sizes(columns);
    double sum = 0, sum_sizes = 0;
    for (std::size_t n = 0; n < columns; ++n) {
      if (c_.add) want[n] += d_values_.at(row * shape.n + static_cast<Index>(n));
      if (shape.epilogue == Epilogue::add_bias) want[n] += d_values_.at(static_cast<Index>(n));
      sizes[n] = std::abs(want[n]);
    }
    for (Index k = 0; k < shape.k; ++k) {
      const double a = a_at(row, k);
      sum += a, sum_sizes += std::abs(a);
      for (std::size_t n = 0; n < columns; ++n) {
        const auto column = static_cast<Index>(n);
        const double product =
            a * b_values_.at(shape.b_transposed ? column * shape.b_stride + k : k * shape.b_stride + column);
        want[n] += product, sizes[n] += std::abs(product);
      }
    }
    double worst = 0;
    const auto see = [&](double got, double wanted, double size) {
      const double error = std::abs(got - wanted) / size * 0x1p24;
      worst = error <= worst ? worst : error;
    };
    const std::vector<double> got = elements(d_, row * shape.n, shape.n, Storage::f32, stream_);
    for (std::size_t n = 0; n < columns; ++n) see(got[n], want[n], sizes[n]);
    if (shape.epilogue == Epilogue::sum_columns) {
      see(elements(vector_, row, 1, Storage::f32, stream_)[0], sum, sum_sizes);
    }
    return worst;
  }

  Case c_;
  Stream& stream_;
  Pattern a_values_, b_values_, d_values_;
  Buffer a_, b_, d_, vector_;
};

/// Prints a row of one engine. Returns whether its result was right: no worse than split_product.cuh promises.
template <class Engine>
bool time_engine(const Case& c, const std::string& text, const std::string& name, const Engine& engine,
                 const std::string& plan, Matrices& matrices, Stream& stream, Clock& clock) {
  Buffer workspace(stream, engine.workspace_bytes());
  workspace.fill(0xff);
  const double error = matrices.error(engine, workspace), allowed = 64 + static_cast<double>(c.shape.k) / 16;
  if (!(error <= allowed)) {
    fmt::print("| {} | {} | wrong: {:.3g} of {:.3g} units | {} |\n", text, name, error, allowed, plan);
    return false;
  }
  const double ms = clock.median([&] { matrices.run(engine, workspace); });
  std::string kernels;
  clock.median([&] {  // of the last run
    kernels = times_of_kernels(stream, [&] { matrices.run(engine, workspace); });
  });
  const double products =
      static_cast<double>(c.shape.m) * static_cast<double>(c.shape.n) * static_cast<double>(c.shape.k);
  fmt::print("| {} | {} | {:.4f} ms | {:.0f} TFLOP/s | {:.3g} | {} | {} |\n", text, name, ms, 2e-9 * products / ms,
             error, kernels, plan);
  std::fflush(stdout);
  return true;
}

bool time_case(const std::string& text, bool all, Stream& stream, Clock& clock) {
  const Case c = parse(text);
  const plan::GpuProductProblem problem = problem_of(c.shape);
  Matrices matrices(c, stream);
  bool right = true, has_pairs = false;
  const auto time_plan = [&](const char* name, const plan::GpuProductPlan& plan) {
    right &= time_engine(c, text, name, FloatProduct(stream.device(), c.shape, plan), plan.explain(), matrices, stream,
                         clock);
  };
  time_plan("warpgroups", plan_product_without_pairs(problem, stream.device().model()));
  for (const plan::GpuProductPlan& plan : product_plans(problem, stream.device().model())) {
    if (!plan.pairs || (has_pairs && !all)) continue;
    time_plan("pairs", plan);
    has_pairs = true;
  }
  if (!can_multiply(stream.device(), c.shape)) return right;
  return time_engine(c, text, "cuBLASLt", Product(stream.device(), c.shape), "", matrices, stream, clock) && right;
}

constexpr const char* kUsual[] = {"32768,4096,1024,bt,bias", "32768,1024,4096", "4096,1024,32768,at,sums"};

}  // namespace

int main(int argc, char** argv) {
  return run_program("cuda_float_product_times", argc, argv, kUsual, [](std::vector<std::string> cases) {
    const bool all = !cases.empty() && cases[0] == "--all";
    if (all) cases.erase(cases.begin());
    if (cases.empty()) cases.assign(std::begin(kUsual), std::end(kUsual));
    Stream stream(penstock::cuda::Device::get(0));
    Clock clock(stream);
    fmt::print("| M,N,K | algorithm | time | rate | error | kernels | plan |\n|---|---|---|---|---|---|---|\n");
    return measure_each(cases, [&](const std::string& text) { return time_case(text, all, stream, clock); }) ? 0 : 1;
  });
}
