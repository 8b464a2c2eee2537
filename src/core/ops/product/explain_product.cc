#include "ops/product/explain_product.h"

#include <string>
#include <utility>

#include "backend/cuda/product/matrix_product.h"
#include "ops/cuda/common.h"

namespace penstock::ops {
namespace {

/// Returns the report of a product by cuBLASLt or in kernels of our own.
PlanReport product_report(std::string what, const cuda::ProductShape& shape, const plan::GpuModel& gpu) {
  PlanReport report = in_own_kernels(gpu, shape)
                          ? plan::explain(problem_of(shape), gpu)
                          : plan::explain_library_product(shape.m, shape.n, shape.k, shape.storage, shape.tf32, gpu);
  if (shape.exact && in_own_kernels(gpu, shape)) {
    report.work =
        fmt::format("fp32 GEMM: {} x {} x {}, planned for {} rows", shape.m, shape.n, shape.k, cuda::kExactRows);
    report.microseconds *= static_cast<double>(shape.m) / static_cast<double>(cuda::kExactRows);
    report.alternatives.clear();
  }
  report.work = std::move(what) + ", " + report.work;
  return report;
}

}  // namespace

PlanReport InputProducts::forward(const plan::GpuModel& gpu) const {
  cuda::ProductShape shape{.storage = storage, .result = storage, .tf32 = tf32};
  shape.m = positions, shape.n = outputs, shape.k = inputs;
  shape.b_transposed = true;
  if (bias) shape.epilogue = cuda::Epilogue::add_bias;
  shape.exact = exact;
  return product_report("input product", shape, gpu);
}

std::vector<PlanReport> InputProducts::backward(bool wants_dx, const plan::GpuModel& gpu) const {
  cuda::ProductShape weights{.storage = storage, .result = plan::Storage::f32, .tf32 = tf32};
  weights.m = outputs, weights.n = inputs, weights.k = positions;
  weights.a_transposed = true;
  if (bias) weights.epilogue = cuda::Epilogue::sum_columns;
  std::vector<PlanReport> reports = {product_report("gradient of the weights", weights, gpu)};
  cuda::ProductShape input{.storage = storage, .result = storage, .tf32 = tf32};
  input.m = positions, input.n = inputs, input.k = outputs;
  if (wants_dx) reports.push_back(product_report("gradient of the input", input, gpu));
  return reports;
}

std::vector<PlanReport> explain_linear(const Linear& shape, bool backward, bool wants_dx, const Target& target,
                                       const plan::Machine& machine) {
  if (!target.device.is_cuda()) return {};
  const InputProducts products{target.positions(),     shape.inputs, shape.outputs, storage_of(target.dtype), true,
                               target.execution.exact, target.tf32()};
  if (!backward) return {products.forward(machine.gpu)};
  return products.backward(wants_dx, machine.gpu);
}

}  // namespace penstock::ops
