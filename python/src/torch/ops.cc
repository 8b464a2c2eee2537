// The ops of namespace `penstock` in PyTorch: their schemas, and which kernels run them. Gradients, shapes of results
// and the rules of transforms are added in Python (penstock/torch/ops.py); what is here is all that a C++ program
// needs to run an exported model.

#include "ops.h"

#include <exception>
#include <string>
#include <string_view>

#include "shim.h"

namespace penstock::torch_ops {
namespace {

// x [B, T, I] or, unless batch_first, [T, B, I]; with batch_sizes [total, I] as a PackedSequence has it. weights: per
// layer and direction weight_ih, weight_hh, bias_ih, bias_hh, as many of these as the cell and the model have.
// state [S, layers * directions, B, H]. lengths int64 [B]. reset bool [B, T], or [total] with batch_sizes. With
// every_state, states are laid out as y, with directions * (S - 1) * H channels: the last layer's but the output.
constexpr const char* recurrent_schema =
    "recurrent(Tensor x, Tensor[] weights, Tensor? state, Tensor? lengths, Tensor? batch_sizes, Tensor? reset, "
    "str cell, int layers, bool bidirectional, bool batch_first, bool keep_tape, bool every_state) "
    "-> (Tensor y, Tensor state_out, Tensor tape, Tensor states)";
// What an eager call wants of it and no more, since in small calls each tensor counts: y, each state
// [layers * directions, B, H], and the tape and every state where they are asked for. states: none (zeros) or each.
constexpr const char* recurrent_eager_schema =
    "recurrent_eager(Tensor x, Tensor[] weights, Tensor[] states, Tensor? lengths, Tensor? batch_sizes, Tensor? reset, "
    "str cell, int layers, bool bidirectional, bool batch_first, bool keep_tape, bool every_state) -> Tensor[]";
// One step of one layer without gradients, on a CPU: x [B, I] or [I], states none (zeros) or each [B, H] or [H], and so
// the states after it, of x's type.
constexpr const char* recurrent_cell_schema =
    "recurrent_cell(Tensor x, Tensor[] weights, Tensor[] states, str cell) -> Tensor[]";
constexpr const char* recurrent_backward_schema =
    "recurrent_backward(Tensor? dy, Tensor? dstate_out, Tensor? dstates, Tensor x, Tensor[] weights, Tensor? state, "
    "Tensor? lengths, Tensor? batch_sizes, Tensor? reset, Tensor y, Tensor tape, "
    "str cell, int layers, bool bidirectional, bool batch_first, bool every_state, bool want_dx, bool want_dweights) "
    "-> (Tensor dx, Tensor dstate, Tensor[] dweights)";
// a, b, h [B, T, C]; h0 [B, C]; lengths int64 [B]; reset bool [B, T].
constexpr const char* scan_schema =
    "scan(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse) "
    "-> (Tensor h, Tensor h_last)";
constexpr const char* scan_backward_schema =
    "scan_backward(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, "
    "Tensor h, bool logarithmic, bool reverse) -> (Tensor da, Tensor db, Tensor dh0)";
// The same with results in tensors of the caller's, of any strides and floating types: states may be wider than terms.
constexpr const char* scan_out_schema =
    "scan_out(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse, *, "
    "Tensor(a!) h, Tensor(b!) h_last) -> ()";
constexpr const char* scan_backward_out_schema =
    "scan_backward_out(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, "
    "Tensor h, bool logarithmic, bool reverse, *, Tensor(a!) da, Tensor(b!) db, Tensor(c!) dh0) -> ()";
// Makes results of a call that had the earlier state (a null one: zeros) those of one that has h0, or dh_last, instead.
constexpr const char* scan_correct_schema =
    "scan_correct(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse, "
    "Tensor? earlier_h0, *, Tensor(a!) h, Tensor(b!) h_last) -> ()";
constexpr const char* scan_backward_correct_schema =
    "scan_backward_correct(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, "
    "Tensor? reset, Tensor h, bool logarithmic, bool reverse, Tensor? earlier_dh_last, *, Tensor(a!) da, "
    "Tensor(b!) db, Tensor(c!) dh0) -> ()";

constexpr std::uint64_t built_against = (std::uint64_t{2} << 56) | (std::uint64_t{10} << 48);

void define(LibraryHandle library, const char* schema) { check_status(shim().library_def(library, schema), schema); }

void implement(const char* key) {
  LibraryHandle library = nullptr;  // lives as long as the process, as its registrations do
  check_status(shim().library_init_impl("penstock", key, __FILE__, __LINE__, &library), key);
  const auto add = [&](const char* name, BoxedKernel kernel) {
    check_status(shim().library_impl(library, name, kernel, built_against), name);
  };
  add("recurrent", recurrent);
  add("recurrent_eager", recurrent_eager);
  add("recurrent_backward", recurrent_backward);
  if (std::string_view(key) == "CPU") add("recurrent_cell", recurrent_cell);
  add("scan", scan);
  add("scan_out", scan_out);
  add("scan_backward", scan_backward);
  add("scan_backward_out", scan_backward_out);
  add("scan_correct", scan_correct);
  add("scan_backward_correct", scan_backward_correct);
}

void add_ops() {
  LibraryHandle library = nullptr;
  check_status(shim().library_init_fragment("penstock", __FILE__, __LINE__, &library), "the library of ops");
  define(library, recurrent_schema);
  define(library, recurrent_eager_schema);
  define(library, recurrent_cell_schema);
  define(library, recurrent_backward_schema);
  define(library, scan_schema);
  define(library, scan_out_schema);
  define(library, scan_backward_schema);
  define(library, scan_backward_out_schema);
  define(library, scan_correct_schema);
  define(library, scan_backward_correct_schema);
  implement("CPU");
  implement("CUDA");
}

/// Registers when the library is loaded, as LibTorch's own extensions do; a failure waits for whoever asks.
struct Registration {
  std::string failure;

  Registration() {
    try {
      add_ops();
    } catch (const std::exception& e) {
      failure = e.what();
    }
  }
} registration;

}  // namespace
}  // namespace penstock::torch_ops

/// Why the ops are not there: null if they are.
extern "C" __attribute__((visibility("default"))) const char* penstock_torch_failure() {
  const std::string& failure = penstock::torch_ops::registration.failure;
  return failure.empty() ? nullptr : failure.c_str();
}
