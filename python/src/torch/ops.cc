// The ops of PyTorch's namespace `penstock`: their schemas and kernels. This is all that a C++ program needs to run an
// exported model. Python (penstock/torch/_ops.py) adds gradients, shapes of results and the rules of transforms.

#include "ops.h"

#include <exception>
#include <string>
#include <string_view>

namespace penstock::torch_ops {
namespace {

/// An op and its schema, which begins with its name.
struct Op {
  BoxedKernel kernel;
  std::string_view schema;

  std::string name() const { return std::string(schema.substr(0, schema.find('('))); }
};

constexpr Op ops[] = {
    // x is [B, T, I] with batch_first, otherwise [T, B, I]; with batch_sizes it is [total, I], in the order of a
    // PackedSequence. With lengths and batch_sizes, x is [total, I] row after row: lengths are the row offsets [B + 1],
    // and batch_sizes [1] is a bound of the steps of a row. weights has weight_ih, weight_hh, bias_ih, bias_hh per
    // layer and direction, as far as the cell and the model have them; a weight_ih [G * H, 0] says that x is W x. state
    // is [S, layers * directions, B, H], lengths int64 [B], reset bool [B, T] or with batch_sizes [total]. With
    // every_state, states has the layout of y with directions * (S - 1) * H channels: all states of the last layer
    // except the output.
    {recurrent,
     "recurrent(Tensor x, Tensor[] weights, Tensor? state, Tensor? lengths, Tensor? batch_sizes, Tensor? reset, "
     "str cell, int layers, bool bidirectional, bool batch_first, bool keep_tape, bool every_state) "
     "-> (Tensor y, Tensor state_out, Tensor tape, Tensor states)"},
    // Op for eager calls, with only the results that are needed: each tensor takes noticeable time in small calls. It
    // returns y, each state [layers * directions, B, H], and on request the tape and every state. states is empty
    // (zeros) or has each state. restarts, on a CPU, has the states with which rows start again at a reset, [layers,
    // H],
    // [layers, B, H] or [layers, B, T, H]; after the tape, the op then returns all states as recurrent takes them.
    {recurrent_eager,
     "recurrent_eager(Tensor x, Tensor[] weights, Tensor[] states, Tensor[] restarts, Tensor? lengths, "
     "Tensor? batch_sizes, Tensor? reset, str cell, int layers, bool bidirectional, bool batch_first, bool keep_tape, "
     "bool every_state) "
     "-> Tensor[]"},
    // One step of one layer on a CPU without gradients. x is [B, I] or [I]; states is empty (zeros) or has each state,
    // [B, H] or [H]. It returns the states after the step, with the type of x.
    {recurrent_cell, "recurrent_cell(Tensor x, Tensor[] weights, Tensor[] states, str cell) -> Tensor[]"},
    {recurrent_backward,
     "recurrent_backward(Tensor? dy, Tensor? dstate_out, Tensor? dstates, Tensor x, Tensor[] weights, Tensor? state, "
     "Tensor? lengths, Tensor? batch_sizes, Tensor? reset, Tensor y, Tensor tape, "
     "str cell, int layers, bool bidirectional, bool batch_first, bool every_state, bool want_dx, bool want_dweights) "
     "-> (Tensor dx, Tensor dstate, Tensor[] dweights)"},
    // a, b and h are [B, T, C], h0 [B, C], lengths int64 [B], reset bool [B, T].
    {scan,
     "scan(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse) "
     "-> (Tensor h, Tensor h_last)"},
    {scan_backward,
     "scan_backward(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, "
     "Tensor h, bool logarithmic, bool reverse) -> (Tensor da, Tensor db, Tensor dh0)"},
    // The causal convolution of each channel by itself: x [B, T, C], state [B, K - 1, C] (the inputs before x, the
    // oldest
    // first; none: zeros), weight [K, C] (the newest input's first), bias [C], reset bool [B, T]. The gradients of
    // weight and bias are of the type of states.
    {causal_convolution,
     "causal_convolution(Tensor x, Tensor? state, Tensor weight, Tensor bias, Tensor? reset) -> Tensor"},
    {causal_convolution_backward,
     "causal_convolution_backward(Tensor dy, Tensor x, Tensor? state, Tensor weight, Tensor? reset) "
     "-> (Tensor dx, Tensor dweight, Tensor dbias)"},
    // Ops that write their results to tensors of the caller, of any strides and float types: states may be wider than
    // terms.
    {scan_out,
     "scan_out(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse, *, "
     "Tensor(a!) h, Tensor(b!) h_last) -> ()"},
    {scan_backward_out,
     "scan_backward_out(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, "
     "Tensor h, bool logarithmic, bool reverse, *, Tensor(a!) da, Tensor(b!) db, Tensor(c!) dh0) -> ()"},
    // Corrects the results of an earlier call with the state earlier_h0 (none: zeros) to those with h0; for the
    // backward pass from earlier_dh_last to dh_last.
    {scan_correct,
     "scan_correct(Tensor a, Tensor b, Tensor? h0, Tensor? lengths, Tensor? reset, bool logarithmic, bool reverse, "
     "Tensor? earlier_h0, *, Tensor(a!) h, Tensor(b!) h_last) -> ()"},
    {scan_backward_correct,
     "scan_backward_correct(Tensor? dh, Tensor? dh_last, Tensor a, Tensor b, Tensor? h0, Tensor? lengths, "
     "Tensor? reset, Tensor h, bool logarithmic, bool reverse, Tensor? earlier_dh_last, *, Tensor(a!) da, "
     "Tensor(b!) db, Tensor(c!) dh0) -> ()"},
};

constexpr std::uint64_t built_against = (std::uint64_t{2} << 56) | (std::uint64_t{10} << 48);

void implement(const char* key) {
  LibraryHandle library = nullptr;  // never freed, like its registrations
  check_status(shim().library_init_impl("penstock", key, __FILE__, __LINE__, &library), key);
  for (const Op& op : ops) {
    if (op.kernel == recurrent_cell && std::string_view(key) != "CPU") continue;
    check_status(shim().library_impl(library, op.name().c_str(), op.kernel, built_against), op.name().c_str());
  }
}

void add_ops() {
  LibraryHandle library = nullptr;
  check_status(shim().library_init_fragment("penstock", __FILE__, __LINE__, &library), "the library of ops");
  for (const Op& op : ops) check_status(shim().library_def(library, op.schema.data()), op.schema.data());
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
