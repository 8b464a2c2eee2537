#include "bench/suite/limits.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "base/timing.h"
#include "penstock/error.h"

namespace penstock::bench {
namespace {

double fastest(const std::vector<double>& times) { return *std::ranges::min_element(times); }

/// Adds up `count` floats, a multiple of 128: eight vectors of 16 at a time, so that only the memory is in the way.
[[gnu::always_inline]] inline float add_up_floats(const float* data, Index count) {
  using Vector [[gnu::vector_size(64)]] = float;
  constexpr Index vectors = 8, lanes = 16;
  Vector sums[vectors] = {};
  for (Index i = 0; i < count; i += vectors * lanes) {
    for (Index v = 0; v < vectors; ++v) {
      Vector next;
      std::memcpy(&next, data + i + v * lanes, sizeof(next));
      sums[v] += next;
    }
  }
  float total = 0.0f;
  for (const Vector& sum : sums) total += sum[0];
  return total;
}

using AddUp = float (*)(const float*, Index);

float add_up_baseline(const float* data, Index count) { return add_up_floats(data, count); }
#ifdef __x86_64__
[[gnu::target("avx2")]] float add_up_avx2(const float* data, Index count) { return add_up_floats(data, count); }
[[gnu::target("avx512f")]] float add_up_avx512(const float* data, Index count) { return add_up_floats(data, count); }
AddUp best_add_up() {
  if (__builtin_cpu_supports("avx512f") != 0) return add_up_avx512;
  return __builtin_cpu_supports("avx2") != 0 ? add_up_avx2 : add_up_baseline;
}
#else
AddUp best_add_up() { return add_up_baseline; }
#endif

/// Seconds of products of [n, n] matrices of this type, summed in float, the second one packed beforehand.
std::vector<double> time_products(double seconds, Index n, dnnl::memory::data_type type) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc a({n, n}, type, memory::format_tag::ab), b({n, n}, type, memory::format_tag::any);
  const memory::desc c({n, n}, memory::data_type::f32, memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine, a, b, c);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), engine);
#endif
  const dnnl::matmul product(description);
  std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, memory(a, engine)},
                                               {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), engine)},
                                               {DNNL_ARG_DST, memory(c, engine)}};
  for (auto& [argument, m] : arguments) std::memset(m.get_data_handle(), 0, m.get_desc().get_size());
  return time_calls(seconds, [&] {
    product.execute(stream, arguments);
    stream.wait();
  });
}

/// A product's flops: rows of the batch times steps, `outputs` sums of `summed` terms each.
double product_flops(double rows, double outputs, double summed) { return 2.0 * rows * outputs * summed; }

}  // namespace

double Limits::product_rate(int threads, const std::string& dtype) {
  const std::pair<std::string, int> key{dtype == "bf16" ? "bf16" : "f32", threads};
  if (const auto known = products_.find(key); known != products_.end()) return known->second;
  const double measured = measure_products(threads, key.first);
  return products_[key] = key.first == "f32" ? measured : std::max(measured, product_rate(threads));
}

double Limits::read_rate(double bytes, int threads) {
  constexpr double smallest = 1 << 14, largest = 1 << 28;  // beyond that no cache helps
  const double rounded = std::clamp(std::exp2(std::round(std::log2(bytes))), smallest, largest);
  const std::pair<int, double> key{threads, rounded};
  const auto known = reads_.find(key);
  return known != reads_.end() ? known->second : reads_[key] = measure_reads(rounded, threads);
}

void Limits::refresh() {
  for (auto& [key, rate] : products_) rate = std::max(rate, measure_products(key.second, key.first));
  for (auto& [key, rate] : products_) rate = std::max(rate, products_.at({"f32", key.second}));
  for (auto& [key, rate] : reads_) rate = std::max(rate, measure_reads(key.second, key.first));
}

double Limits::measure_products(int threads, const std::string& dtype) const {
  constexpr Index n = 1024;
  using Type = dnnl::memory::data_type;
  omp_set_num_threads(threads);
  try {
    return product_flops(n, n, n) / fastest(time_products(seconds_, n, dtype == "bf16" ? Type::bf16 : Type::f32));
  } catch (const dnnl::error&) {
    if (dtype == "bf16") return 0.0;  // a chip without such products
    throw;
  }
}

double Limits::measure_reads(double bytes, int threads) const {
  constexpr Index granule = 128, line = 64;  // floats, bytes
  const Index share = std::max<Index>(granule, static_cast<Index>(bytes / sizeof(float)) / threads / granule * granule);
  std::vector<std::vector<float>> buffers(static_cast<std::size_t>(threads));
  std::vector<float> sums(static_cast<std::size_t>(threads));
  const AddUp add_up = best_add_up();
  // Several rounds in one parallel region: a fork must not look like memory.
  const Index rounds = std::max<Index>(1, static_cast<Index>(4e6 / bytes));
  // A vector across two cache lines would take the time of both.
  const auto fill = [&](std::vector<float>& buffer) {
    buffer.assign(static_cast<std::size_t>(share) + line / sizeof(float), 1.0f);
  };
  const auto first_line = [&](std::vector<float>& buffer) {
    void* start = buffer.data();
    std::size_t space = buffer.size() * sizeof(float);
    return static_cast<const float*>(std::align(line, line, start, space));
  };
#pragma omp parallel num_threads(threads)
  fill(buffers[static_cast<std::size_t>(omp_get_thread_num())]);
  const std::vector<double> times = time_calls(seconds_, [&] {
#pragma omp parallel num_threads(threads)
    {
      const auto mine = static_cast<std::size_t>(omp_get_thread_num());
      if (buffers[mine].empty()) fill(buffers[mine]);
      const float* const data = first_line(buffers[mine]);
      float sum = 0.0f;
      for (Index round = 0; round < rounds; ++round) sum += add_up(data, share);
      sums[mine] = sum;
    }
  });
  const double total = static_cast<double>(share) * sizeof(float) * threads * static_cast<double>(rounds);
  return total / fastest(times);
}

Limit Limits::of_bare_scan(const Case& test) {
  const double count = static_cast<double>(test.shape.rows) * static_cast<double>(test.shape.steps) *
                       static_cast<double>(test.shape.hidden);
  Limit limit;
  // Forward: a, b, h. Backward: a, b, h, dh, da, db, where b counts only as a logarithm.
  const double arrays = test.pass == Pass::forward ? 3.0 : test.cell == "scan" ? 8.0 : 9.0;
  limit.bytes = arrays * sizeof(float) * count;
  limit.flops = (test.pass == Pass::forward ? 2.0 : 6.0) * count;
  limit.recurrent = limit.seconds = limit.bytes / read_rate(limit.bytes, test.threads);
  limit.bound = "memory";
  return limit;
}

Limit Limits::of(const Case& test) {
  if (test.on_gpu()) return limit_on_gpu(test);
  if (is_bare_scan(test.cell)) return of_bare_scan(test);
  const CellInfo& cell = find_cell(test.cell);
  const double rows = static_cast<double>(test.shape.rows), steps = static_cast<double>(test.shape.steps);
  const double inputs = static_cast<double>(test.shape.inputs), hidden = static_cast<double>(test.shape.hidden);
  const double outputs = static_cast<double>(cell.gates) * hidden, width = sizeof(float);
  const double weight_width = test.dtype == "f32" ? sizeof(float) : 2.0;
  const double products = product_rate(test.threads, test.dtype);
  const double head_size = hidden / static_cast<double>(test.shape.heads);
  const double recurrent_bytes = cell.scan ? 0.0 : weight_width * outputs * head_size;
  Limit limit;
  if (test.pass == Pass::step) {
    limit.bytes = recurrent_bytes + weight_width * outputs * inputs;
    limit.flops = product_flops(rows, outputs, inputs + (cell.scan ? 0.0 : head_size));
    limit.recurrent = limit.seconds = limit.bytes / read_rate(limit.bytes, test.threads);
    limit.bound = "reading weights";
    return limit;
  }
  const bool training = test.pass == Pass::training;
  const double of_input = product_flops(rows * steps, outputs, inputs);
  const double of_recurrence = cell.scan ? 0.0 : product_flops(rows * steps, outputs, head_size);
  // Training multiplies three times: forward, for the gradient of what came in, and for that of the weights. The first
  // two wait from step to step and read R anew for each; the third is one product over all steps.
  const double walks = training ? 2.0 : 1.0;
  limit.flops = (training ? 3.0 : 1.0) * (of_input + of_recurrence);
  limit.input = (training ? 3.0 : 1.0) * of_input / products;
  const double multiplying = walks * of_recurrence / products;
  const double reading = cell.scan ? 0.0 : walks * steps * recurrent_bytes / read_rate(recurrent_bytes, test.threads);
  limit.recurrent = std::max(multiplying, reading) + (training ? of_recurrence / products : 0.0);
  limit.seconds = limit.input + limit.recurrent;
  limit.bound = reading > multiplying && reading > limit.input ? "reading R" : "products";
  const double sequence_bytes = walks * width * rows * steps * (inputs + hidden);
  const double moving = sequence_bytes / read_rate(sequence_bytes, test.threads);
  if (moving > limit.seconds) {
    limit.seconds = moving;
    limit.bound = "memory";
  }
  return limit;
}

}  // namespace penstock::bench
