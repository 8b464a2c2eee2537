// The ops between products and recurrences on a GPU.

#include "backend/cuda/pointwise/changes.h"
#include "backend/cuda/pointwise/convolution.h"
#include "backend/cuda/pointwise/copy.h"
#include "backend/cuda/pointwise/embedding.h"
#include "backend/cuda/pointwise/residual.h"
#include "backend/cuda/pointwise/rms_norm.h"
#include "backend/cuda/pointwise/silu_gate.h"
#include "ops/cuda/common.h"
#include "ops/cuda/ops.h"
#include "ops/cuda/uploaded.h"

namespace penstock::ops {

namespace {

cuda::Positions kernel_positions(const Target& target) {
  return {target.rows, target.steps, target.has(CallFlag::lengths)};
}

cuda::DeviceAddress lengths_of(const Call& call) { return address_of(call.batch.lengths); }

cuda::Embedding embedding_of(const Embedding& shape, const Target& target) {
  return {.positions = kernel_positions(target),
          .vocabulary = shape.vocabulary,
          .width = shape.width,
          .storage = storage_of(target.dtype),
          .table = storage_of(target.dtype)};
}

cuda::RmsNorm norm_of(const ResidualNorm& shape, const Target& target) {
  cuda::RmsNorm norm{.rows = target.positions(), .width = shape.width, .storage = storage_of(target.dtype)};
  norm.epsilon = ResidualNorm::epsilon;
  if (shape.drops(target)) norm.dropout = {shape.dropout.probability, shape.dropout.site};
  return norm;
}

cuda::Convolution convolution_of(const CausalConvolution& shape, const Target& target) {
  return {.positions = kernel_positions(target),
          .width = shape.width,
          .taps = shape.taps,
          .storage = storage_of(target.dtype)};
}

cuda::Changes changes_of(const Changes& changes, const Target& target) {
  cuda::Changes spec{.positions = kernel_positions(target),
                     .inputs = changes.inputs,
                     .horizon = changes.horizon,
                     .targets = changes.targets};
  spec.features = storage_of(target.dtype);
  for (const Changes::Shared& column : changes.columns) {
    spec.columns.push_back(
        {column.input, column.target, changes.change_scale * column.factor, column.factor, column.offset});
  }
  return spec;
}

}  // namespace

Prepared cuda_embedding_forward(const Embedding& shape, const Target& target) {
  return simple([kernel = cuda::EmbeddingForwardExecutable(gpu_of(target), embedding_of(shape, target))](
                    const Call& call, const Operands& memory) {
    kernel.run({address_of(memory, EmbeddingOperand::tokens), lengths_of(call),
                address_of(memory, EmbeddingOperand::table), address_of(memory, EmbeddingOperand::y)},
               stream_of(call));
  });
}

Prepared cuda_embedding_backward(const Embedding& shape, const Target& target) {
  const cuda::EmbeddingBackwardExecutable kernel(gpu_of(target), embedding_of(shape, target));
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        kernel.run(
            {address_of(memory, EmbeddingBackwardOperand::tokens), lengths_of(call),
             address_of(memory, EmbeddingBackwardOperand::dy), address_of(memory, EmbeddingBackwardOperand::dtable)},
            address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

Prepared cuda_residual_norm_forward(const ResidualNorm& shape, const Target& target) {
  cuda::RmsNorm norm = norm_of(shape, target);
  norm.branch = shape.branch;
  return simple([kernel = cuda::RmsNormForwardExecutable(gpu_of(target), norm), drops = shape.drops(target)](
                    const Call& call, const Operands& memory) {
    kernel.run({.x = address_of(memory, NormOperand::x),
                .branch = address_of(memory, NormOperand::branch),
                .gain = address_of(memory, NormOperand::gain),
                .sum = address_of(memory, NormOperand::sum),
                .y = address_of(memory, NormOperand::normal),
                .inverse = address_of(memory, NormOperand::inverse),
                .seed = drops ? address_of(call.device_seed) : 0},
               stream_of(call));
  });
}

Prepared cuda_residual_norm_backward(const ResidualNorm& shape, bool wants_sums, const Target& target) {
  cuda::RmsNorm norm = norm_of(shape, target);
  norm.sums = wants_sums;
  norm.branch = shape.drops(target);
  const cuda::RmsNormBackwardExecutable without(gpu_of(target), norm);
  norm.add_dx = true;
  const cuda::RmsNormBackwardExecutable with(gpu_of(target), norm);
  return simple(
      [with, without, drops = shape.drops(target)](const Call& call, const Operands& memory) {
        // The last sum of a model has no gradient but that of its norm.
        const cuda::RmsNormBackwardExecutable& kernel =
            memory.values[NormBackwardOperand::dsum] != nullptr ? with : without;
        kernel.run({.x = address_of(memory, NormBackwardOperand::sum),
                    .dy = address_of(memory, NormBackwardOperand::dnormal),
                    .inverse = address_of(memory, NormBackwardOperand::inverse),
                    .gain = address_of(memory, NormBackwardOperand::gain),
                    .d = address_of(memory, NormBackwardOperand::dsum),
                    .dx = address_of(memory, NormBackwardOperand::dx),
                    .dbranch = address_of(memory, NormBackwardOperand::dbranch),
                    .gain_gradient = address_of(memory, NormBackwardOperand::dgain),
                    .sums = address_of(memory, NormBackwardOperand::column_sums),
                    .seed = drops ? address_of(call.device_seed) : 0},
                   address_of(memory.scratch), stream_of(call));
      },
      std::max(with.workspace_bytes(), without.workspace_bytes()));
}

Prepared cuda_dropout(Index width, const Dropout& shape, const Target& target) {
  const cuda::Residual residual{.size = target.positions() * width,
                                .storage = storage_of(target.dtype),
                                .add = false,
                                .dropout = {shape.probability, shape.site}};
  return simple(
      [kernel = cuda::ResidualExecutable(gpu_of(target), residual)](const Call& call, const Operands& memory) {
        kernel.run({.branch = address_of(memory, UnaryOperand::x),
                    .y = address_of(memory, UnaryOperand::y),
                    .seed = address_of(call.device_seed)},
                   stream_of(call));
      });
}

Prepared cuda_residual_sum(Index width, const Dropout& shape, const Target& target) {
  cuda::Residual residual{.size = target.positions() * width, .storage = storage_of(target.dtype)};
  residual.dropout = {shape.probability, shape.site};
  const bool drops = residual.dropout.active();
  return simple(
      [kernel = cuda::ResidualExecutable(gpu_of(target), residual), drops](const Call& call, const Operands& memory) {
        kernel.run({.x = address_of(memory, ResidualSumOperand::x),
                    .branch = address_of(memory, ResidualSumOperand::branch),
                    .y = address_of(memory, ResidualSumOperand::sum),
                    .seed = drops ? address_of(call.device_seed) : 0},
                   stream_of(call));
      });
}

Prepared cuda_silu_gate_forward(const SiluGate& shape, const Target& target) {
  const cuda::SiluGate gate{.rows = target.positions(), .width = shape.inner, .storage = storage_of(target.dtype)};
  return simple([kernel = cuda::SiluGateExecutable(gpu_of(target), gate)](const Call& call, const Operands& memory) {
    kernel.run({.gv = address_of(memory, UnaryOperand::x), .to = address_of(memory, UnaryOperand::y)}, 0,
               stream_of(call));
  });
}

Prepared cuda_silu_gate_backward(const SiluGate& shape, bool wants_sums, const Target& target) {
  const cuda::SiluGateExecutable kernel(gpu_of(target), {.rows = target.positions(),
                                                         .width = shape.inner,
                                                         .storage = storage_of(target.dtype),
                                                         .backward = true,
                                                         .sums = wants_sums});
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        kernel.run({.gv = address_of(memory, SiluGateBackwardOperand::x),
                    .dy = address_of(memory, SiluGateBackwardOperand::dy),
                    .to = address_of(memory, SiluGateBackwardOperand::dx),
                    .sums = address_of(memory, SiluGateBackwardOperand::column_sums)},
                   address_of(memory.persistent), stream_of(call));
      },
      0, kernel.workspace_bytes());
}

Prepared cuda_causal_convolution_forward(const CausalConvolution& shape, const Target& target) {
  return simple([kernel = cuda::ConvolutionForwardExecutable(gpu_of(target), convolution_of(shape, target))](
                    const Call& call, const Operands& memory) {
    kernel.run({.lengths = lengths_of(call),
                .reset = address_of(call.batch.reset),
                .x = address_of(memory, ConvolutionOperand::x),
                .weight = address_of(memory, ConvolutionOperand::weight),
                .bias = address_of(memory, ConvolutionOperand::bias),
                .y = address_of(memory, ConvolutionOperand::y),
                .state_in = address_of(memory, ConvolutionOperand::state_in),
                .state_out = address_of(memory, ConvolutionOperand::state_out)},
               stream_of(call));
  });
}

Prepared cuda_causal_convolution_backward(const CausalConvolution& shape, const Target& target) {
  const cuda::ConvolutionBackwardExecutable kernel(gpu_of(target), convolution_of(shape, target));
  return simple(
      [kernel](const Call& call, const Operands& memory) {
        kernel.run({.lengths = lengths_of(call),
                    .reset = address_of(call.batch.reset),
                    .x = address_of(memory, ConvolutionBackwardOperand::x),
                    .weight = address_of(memory, ConvolutionBackwardOperand::weight),
                    .state_in = address_of(memory, ConvolutionBackwardOperand::state_in),
                    .dy = address_of(memory, ConvolutionBackwardOperand::dy),
                    .dx = address_of(memory, ConvolutionBackwardOperand::dx),
                    .weight_gradient = address_of(memory, ConvolutionBackwardOperand::dweight),
                    .bias_gradient = address_of(memory, ConvolutionBackwardOperand::dbias)},
                   address_of(memory.scratch), stream_of(call));
      },
      kernel.workspace_bytes());
}

Prepared cuda_cast(const CastShape& shape, DType from, DType to, const Target& target) {
  const Index size = shape.per_position ? shape.width * target.positions() : shape.width;
  return simple([kernel = cuda::CastExecutable(gpu_of(target), size, storage_of(from), storage_of(to))](
                    const Call& call, const Operands& memory) {
    kernel.run(address_of(memory, UnaryOperand::x), address_of(memory, UnaryOperand::y), 0, stream_of(call));
  });
}

Prepared cuda_clear_padding(Index width, const Target& target) {
  const cuda::CopyRows rows{.positions = kernel_positions(target),
                            .width = width,
                            .from_stride = width,
                            .to_stride = width,
                            .from = storage_of(target.master()),
                            .to = storage_of(target.dtype)};
  return simple([kernel = cuda::CopyRowsExecutable(gpu_of(target), rows)](const Call& call, const Operands& memory) {
    kernel.run({.from = address_of(memory, UnaryOperand::x),
                .to = address_of(memory, UnaryOperand::y),
                .lengths = lengths_of(call)},
               stream_of(call));
  });
}

Prepared cuda_numbered_rows(const NumberedRows& shape, bool scatters, const Target& target) {
  const cuda::CopyRows copy{.positions = {target.rows, 1},
                            .width = shape.width,
                            .from_stride = scatters ? shape.width : shape.stride,
                            .to_stride = scatters ? shape.stride : shape.width,
                            .numbered = scatters ? cuda::CopyRows::Numbered::to : cuda::CopyRows::Numbered::from,
                            .from = plan::Storage::f32,
                            .to = plan::Storage::f32,
                            .alignment = shape.alignment};
  const int from = scatters ? NumberedRowsOperand::rows : NumberedRowsOperand::array;
  const int to = scatters ? NumberedRowsOperand::array : NumberedRowsOperand::rows;
  return simple(
      [kernel = cuda::CopyRowsExecutable(gpu_of(target), copy), from, to](const Call& call, const Operands& memory) {
        kernel.run({.from = address_of(memory, from),
                    .to = address_of(memory, to),
                    .numbers = address_of(memory, NumberedRowsOperand::numbers)},
                   stream_of(call));
      });
}

Prepared cuda_read_changes(const Changes& changes, const Target& target) {
  const cuda::ChangesExecutable kernel(gpu_of(target), changes_of(changes, target));
  return simple(
      [kernel, columns = Uploaded(gpu_of(target), kernel.columns())](const Call& call, const Operands& memory) {
        kernel.read({.columns = columns.address(),
                     .features = address_of(memory, ReadChangesOperand::features),
                     .lengths = lengths_of(call),
                     .reset = address_of(call.batch.reset),
                     .state_in = address_of(memory, ReadChangesOperand::state_in),
                     .state_out = address_of(memory, ReadChangesOperand::state_out),
                     .y = address_of(memory, ReadChangesOperand::y)},
                    stream_of(call));
      });
}

Prepared cuda_add_last_values(const Changes& changes, const Target& target) {
  const cuda::ChangesExecutable kernel(gpu_of(target), changes_of(changes, target));
  return simple(
      [kernel, columns = Uploaded(gpu_of(target), kernel.columns())](const Call& call, const Operands& memory) {
        kernel.add_last({.columns = columns.address(),
                         .features = address_of(memory, AddLastValuesOperand::features),
                         .lengths = lengths_of(call),
                         .outputs = address_of(memory, AddLastValuesOperand::outputs)},
                        stream_of(call));
      });
}

}  // namespace penstock::ops
