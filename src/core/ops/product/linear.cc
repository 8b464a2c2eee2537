#include "ops/product/linear.h"

#include <algorithm>
#include <array>
#include <bit>

#include "backend/cpu/instruction_sets.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/machine.h"
#include "backend/cpu/product_kernels.h"
#include "base/threads.h"
#include "ops/cuda/ops.h"
#include "ops/pointwise/elementwise.h"
#include "ops/product/explain_product.h"
#include "ops/product/matmul.h"
#include "plan/cpu/pays_for_team.h"

namespace penstock::ops {

namespace {

Execution with_threads(Execution execution, int threads) {
  execution.threads = threads;
  return execution;
}

template <class Real>
std::unique_ptr<Executable> forward(const Linear& shape, const Target& target) {
  return simple([shape, execution = target.execution](const Call& call, const Operands& memory) {
    const Index positions = call.batch.rows * call.batch.steps;
    auto* const y = memory.get<Real>(LinearOperand::y);
    fill_rows(call.threads, positions, shape.outputs, memory.get<const Real>(LinearOperand::bias), y);
    matmul<Real>({positions, shape.outputs, shape.inputs}, {memory.get<const Real>(LinearOperand::x), shape.inputs},
                 {memory.get<const Real>(LinearOperand::weight), shape.inputs, true}, {y, shape.outputs, true},
                 with_threads(execution, call.threads));
  });
}

/// One position: the same sums in the same order as forward() has in exact mode.
template <class Real>
std::unique_ptr<Executable> step(const Linear& shape) {
  return simple([shape, kernels = cpu::product_kernels<Real>()](const Call&, const Operands& memory) {
    const auto* const x = memory.get<const Real>(LinearOperand::x);
    const auto* const weight = memory.get<const Real>(LinearOperand::weight);
    auto* const y = memory.get<Real>(LinearOperand::y);
    std::copy_n(memory.get<const Real>(LinearOperand::bias), shape.outputs, y);
    if (shape.inputs == 1) {  // the weights are one row as much as one column, and as a row fill whole vectors
      return kernels.rows_times_columns(0, 1, shape.outputs, 1, x, 1, 1, weight, shape.outputs, Real(1), y,
                                        shape.outputs);
    }
    kernels.rows_times_rows(0, 1, shape.outputs, shape.inputs, x, shape.inputs, weight, shape.inputs, Real(1), y,
                            shape.outputs);
  });
}

/// A mark that stands behind panels, so that another instruction set does not misread them: the lanes of a vector plus
/// the byte of a zero weight, which is 0 or 128.
std::uint32_t int8_form(const cpu::CellKernels<float>& kernels) {
  const std::int8_t weight = 0;
  const float scale = 0.0f;
  std::array<float, 48> panels = {};  // one input, 16 lanes of 12 bytes
  kernels.pack_scan(1, 1, {nullptr, nullptr, {&weight, &scale}}, panels.data());
  return static_cast<std::uint32_t>(kernels.lanes) + (std::bit_cast<std::uint32_t>(panels[0]) & 0xffu);
}

/// Bytes of a unit in a panel: its inputs, and what kernels append (panel_int8.inl).
Index int8_unit_bytes(Index inputs) { return (inputs + 3) / 4 * 4 + 8; }

/// A product with panels of int8: all positions as the steps of one row.
class Int8Linear final : public Executable {
 public:
  Int8Linear(const Linear& shape, const Target& target)
      : shape_(shape),
        kernels_(cpu::int8_kernels(cpu::kInt8Product)),
        form_(int8_form(kernels_)),
        threads_(target.has(CallFlag::step) ? 1 : resolve_threads(target.execution.threads)) {}

  std::size_t scratch_bytes() const override {
    const Index rows = threads_ * (cpu::kScanSites + cpu::kRoundedRows);
    return static_cast<std::size_t>(rows * kernels_.rounded_inputs(shape_.inputs)) * sizeof(std::uint16_t);
  }

  void run(const Call& call, const Operands& memory) override {
    const Index positions = call.batch.rows * call.batch.steps, first = 0;
    const auto* const panels = memory.get<const float>(LinearOperand::weight);
    require(std::bit_cast<std::uint32_t>(panels[int8_panel_floats(shape_) - 1]) == form_,
            "int8 weights must have been packed for the instruction set in use: open the model anew");
    cpu::ScanLayer<float> job;
    job.plan.rows = 1;
    job.plan.row_of = &first;
    job.plan.length = &positions;
    job.plan.cells = {&first, 1};
    job.input = shape_.inputs;
    job.hidden = shape_.outputs;
    job.gates = 1;
    job.x = memory.get<const float>(LinearOperand::x);
    job.x_map = {&first, shape_.inputs};
    job.packed = panels;
    job.bias = memory.get<const float>(LinearOperand::bias);
    job.wx = memory.get<float>(LinearOperand::y);
    job.rounded = static_cast<std::uint16_t*>(memory.scratch);
    const double work = static_cast<double>(positions * shape_.inputs) * static_cast<double>(shape_.outputs);
    const bool shared = positions > 1 && plan::pays_for_team(work / multiply_adds(cpu::machine().costs, true));
    run_team(shared ? threads_ : 1, [&](int thread, int team) {
      cpu::ScanLayerPart part;
      part.slot_end = 1;
      part.begin = positions * thread / team;
      part.end = positions * (thread + 1) / team;
      part.block_end = (shape_.outputs + kernels_.lanes - 1) / kernels_.lanes;
      part.thread = thread;
      if (part.begin < part.end) kernels_.scan_layer(job, part);
    });
  }

 private:
  Linear shape_;
  cpu::CellKernels<float> kernels_;
  std::uint32_t form_;
  int threads_;
};

template <class Real>
std::unique_ptr<Executable> backward(const Linear& shape, const Target& target) {
  using Of = LinearBackwardOperand;
  const auto scratch = static_cast<std::size_t>(gradient_parts(target.positions()) * shape.outputs) * sizeof(Real);
  return simple(
      [shape, planned = target.execution](const Call& call, const Operands& memory) {
        const Execution execution = with_threads(planned, call.threads);
        const Index positions = call.batch.rows * call.batch.steps;
        const auto* const dy = memory.get<const Real>(Of::dy);
        auto* const dbias = memory.get<Real>(Of::dbias);
        matmul<Real>({shape.outputs, shape.inputs, positions}, {dy, shape.outputs, true},
                     {memory.get<const Real>(Of::x), shape.inputs}, {memory.get<Real>(Of::dweight), shape.inputs},
                     execution);
        if (dbias != nullptr) {
          column_sums(call.threads, positions, shape.outputs, dy, dbias, static_cast<Real*>(memory.scratch));
        }
        if (auto* const dx = memory.get<Real>(Of::dx)) {
          matmul<Real>({positions, shape.inputs, shape.outputs}, {dy, shape.outputs},
                       {memory.get<const Real>(Of::weight), shape.inputs}, {dx, shape.inputs}, execution);
        }
      },
      scratch);
}

/// Multiply-adds for each position of `count` products with the weights or of gradients of them.
double products(const Linear& shape, int count) {
  return count * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
}

}  // namespace

Index int8_panel_floats(const Linear& shape) {
  constexpr Index most_lanes = 16;
  const Index units = (shape.outputs + most_lanes - 1) / most_lanes * most_lanes;
  return units * int8_unit_bytes(shape.inputs) / static_cast<Index>(sizeof(float)) + 1;
}

void pack_int8(const Linear& shape, const std::int8_t* weight, const float* scales, float* panels) {
  const auto kernels = cpu::int8_kernels(cpu::kInt8Product);
  const Index last = int8_panel_floats(shape) - 1;
  require(static_cast<Index>(kernels.scan_panels(shape.inputs, shape.outputs)) <= last,
          "panels of int8 must have {} floats at most", last);
  kernels.pack_scan(shape.inputs, shape.outputs, {nullptr, nullptr, {weight, scales}}, panels);
  panels[last] = std::bit_cast<float>(int8_form(kernels));
}

void unpack_int8(const Linear& shape, const float* panels, std::int8_t* weight) {
  constexpr std::uint32_t zeros = 128;
  const auto form = std::bit_cast<std::uint32_t>(panels[int8_panel_floats(shape) - 1]);
  const Index lanes = form % zeros;
  const auto zero = static_cast<std::uint8_t>(form - form % zeros);
  require(lanes > 0, "panels of int8 must have been packed before they are read");
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(panels);
  for (Index unit = 0; unit < shape.outputs; ++unit) {
    const std::uint8_t* const panel = bytes + unit / lanes * lanes * int8_unit_bytes(shape.inputs);
    for (Index k = 0; k < shape.inputs; ++k) {
      const std::uint8_t byte = panel[(k / 4 * lanes + unit % lanes) * 4 + k % 4];
      *weight++ = std::bit_cast<std::int8_t>(static_cast<std::uint8_t>(byte - zero));
    }
  }
}

Op linear_forward(const Linear& shape) {
  return {"linear",
          [shape](const Target& target) -> std::unique_ptr<Executable> {
            if (shape.int8) return std::make_unique<Int8Linear>(shape, target);
            if (target.device.is_cuda()) return cuda_linear_forward(shape, target);
            return with_real(target.dtype, [&](auto real) {
              using Real = decltype(real);
              return target.has(CallFlag::step) ? step<Real>(shape) : forward<Real>(shape, target);
            });
          },
          products(shape, 1),
          [shape](const Target& target, const plan::Machine& machine) {
            return explain_linear(shape, false, false, target, machine);
          },
          shape};
}

Op linear_backward(const Linear& shape, bool wants_dbias, bool wants_dx) {
  return {"linear.backward",
          [shape, wants_dbias, wants_dx](const Target& target) {
            if (target.device.is_cuda()) return cuda_linear_backward(shape, wants_dbias, wants_dx, target);
            return with_real(target.dtype, [&](auto real) { return backward<decltype(real)>(shape, target); });
          },
          products(shape, wants_dx ? 2 : 1),
          [shape, wants_dx](const Target& target, const plan::Machine& machine) {
            return explain_linear(shape, true, wants_dx, target, machine);
          }};
}

}  // namespace penstock::ops
