#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/suite/case.h"

namespace penstock::bench {

/// The least time that a case can take on this machine, and what is in the way.
struct Limit {
  double seconds = 0.0;
  std::string bound;       ///< "products", "reading R", "reading weights" or "memory"
  double input = 0.0;      ///< Seconds of `seconds` that the products of the input take,
  double recurrent = 0.0;  ///< and the recurrence.
  double flops = 0.0;      ///< Operations of one call: additions and multiplications of all matrix products.
  double bytes = 0.0;      ///< Bytes read: the weights by a step of a stream, all sequences by a bare scan.
};

/// Returns the limit on a GPU: products at cuBLASLt's rate for large ones, and all reads and writes at a copy's.
Limit limit_on_gpu(const Case& test);

/// Limits of this machine, measured on first use and then kept.
class Limits {
 public:
  /// Each figure is the best of repetitions that together take about `seconds`.
  explicit Limits(double seconds = 0.05) : seconds_(seconds) {}

  /// Additions and multiplications a second in a product of [1024, 1024] matrices: of bfloat16 where `dtype` is "bf16"
  /// and the chip is the faster for it, else of floats.
  double product_rate(int threads, const std::string& dtype = "f32");
  /// Bytes a second when `bytes` are read over and over.
  double read_rate(double bytes, int threads);

  /// Measures all that was asked for once more and keeps the better figures: what a neighbour took is no limit.
  void refresh();

  Limit of(const Case& test);

  /// All that was measured: ((dtype, threads), rate) and ((threads, bytes), rate).
  const std::map<std::pair<std::string, int>, double>& product_rates() const { return products_; }
  const std::map<std::pair<int, double>, double>& read_rates() const { return reads_; }

 private:
  Limit of_bare_scan(const Case& test);
  /// 0 where the chip has no products of the dtype, "f32" or "bf16".
  double measure_products(int threads, const std::string& dtype) const;
  double measure_reads(double bytes, int threads) const;

  double seconds_;
  std::map<std::pair<std::string, int>, double> products_;
  std::map<std::pair<int, double>, double> reads_;  // by threads and a power of two of bytes
};

}  // namespace penstock::bench
