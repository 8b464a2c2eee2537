#pragma once

#include "shim.h"

/// Kernels of the ops that ops.cc registers.
namespace penstock::torch_ops {

void recurrent(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void recurrent_eager(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void recurrent_cell(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void recurrent_backward(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void causal_convolution(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void causal_convolution_backward(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void scan(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void scan_out(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void scan_correct(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void scan_backward(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void scan_backward_out(StableValue* stack, std::uint64_t arguments, std::uint64_t results);
void scan_backward_correct(StableValue* stack, std::uint64_t arguments, std::uint64_t results);

}  // namespace penstock::torch_ops
