// The ops of PyTorch's namespace `penstock`: their schemas and kernels. This is all that a C++ program needs to run an
// exported model. Python (penstock/torch/_ops.py) adds gradients, shapes of results and the rules of transforms.

#include "ops.h"

#include <exception>
#include <string>
#include <string_view>

namespace penstock::torch_ops {
namespace {

// x is [B, T, I] with batch_first, otherwise [T, B, I]; with batch_sizes it is [total, I], in the order of a
// PackedSequence. weights has weight_ih, weight_hh, bias_ih, bias_hh per layer and direction, as far as the cell and
// the model have them. state is [S, layers * directions, B, H], lengths int64 [B], reset bool [B, T] or with
// batch_sizes [total]. With every_state, states has the layout of y with directions * (S - 1) * H channels: all states
// of the last layer except the output.
constexpr const char* recurrent_schema =
    "recurrent(Tensor x, Tensor[] weights, Tensor? state, Tensor? lengths, Tensor? batch_sizes, Tensor? reset, "
    "str cell, int layers, bool bidirectional, bool batch_first, bool keep_tape, bool every_state) "
    "-> (Tensor y, Tensor state_out, Tensor tape, Tensor states)";
// The same op for eager calls, with only the results that are needed: each tensor takes noticeable time in small calls.
// It returns y, each state [layers * directions, B, H], and on request the tape and every state. states is empty
// (zeros) or has each state.
constexpr const char* recurrent_eager_schema =
    "recurrent_eager(Tensor x, Tensor[] weights, Tensor[] states, Tensor? lengths, Tensor? batch_sizes, Tensor? reset, "
    "str cell, int layers, bool bidirectional, bool batch_first, bool keep_tape, bool every_state) -> Tensor[]";
// One step of one layer on a CPU without gradients. x is [B, I] or [I]; states is empty (zeros) or has each state, [B,
// H] or [H]. It returns the states after the step, with the type of x.
constexpr const char* recurrent_cell_schema =
    "recurrent_cell(Tensor x, Tensor[] weights, Tensor[] states, str cell) -> Tensor[]";
constexpr const char* recurrent_backward_schema =
    "recurrent_backward(Tensor? dy, Tensor? dstate_out, Tensor? dstates, Tensor x, Tensor[] weights, Tensor? state, "
    "Tensor? lengths, Tensor? batch_sizes, Tensor? reset, Tensor y, Tensor tape, "
    "str cell, int layers, bool bidirectional, bool batch_first, bool every_state, bool want_dx, bool want_dweights) "
    "-> (Tensor dx, Tensor dstate, Tensor[] dweights)";
// a, b and h are [B, T, C], h0 [B, C], lengths int64 [B], reset bool [B, T].
constexpr const char* scan_schema =
    "scan(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse) "
    "-> (Tensor h, Tensor h_last)";
constexpr const char* scan_backward_schema =
    "scan_backward(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, "
    "Tensor h, bool logarithmic, bool reverse) -> (Tensor da, Tensor db, Tensor dh0)";
// The same ops with results in tensors of the caller, of any strides and float types: states may be wider than terms.
constexpr const char* scan_out_schema =
    "scan_out(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse, *, "
    "Tensor(a!) h, Tensor(b!) h_last) -> ()";
constexpr const char* scan_backward_out_schema =
    "scan_backward_out(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, "
    "Tensor h, bool logarithmic, bool reverse, *, Tensor(a!) da, Tensor(b!) db, Tensor(c!) dh0) -> ()";
// Corrects the results of an earlier call with the state earlier_h0 (none: zeros) to those with h0; for the backward
// pass from earlier_dh_last to dh_last.
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
  LibraryHandle library = nullptr;  // never freed, like its registrations
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

/// Registers the ops when the library is loaded, as LibTorch's own extensions do. Stores a failure for
/// penstock_torch_failure().
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

/// Returns why the ops could not be registered; null if they were.
extern "C" __attribute__((visibility("default"))) const char* penstock_torch_failure() {
  const std::string& failure = penstock::torch_ops::registration.failure;
  return failure.empty() ? nullptr : failure.c_str();
}
