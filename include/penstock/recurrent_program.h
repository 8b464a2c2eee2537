#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/call_flags.h"
#include "penstock/recurrent.h"
#include "penstock/tensor.h"

/// Recurrent stacks without weights of their own: compiled forward and backward passes over the caller's memory.
namespace penstock {

/// Describes the calls of a program: everything except addresses, lengths and values.
struct RecurrentForm {
  /// Type of x, y and their gradients. CPU: f32, f64, bf16; GPU: f32, bf16, f16. A CPU stores bf16 but computes in
  /// float, with products as Execution::precision says.
  DType dtype = DType::f32;
  /// Type of the weights: `dtype`, or f32 if `dtype` is bf16 or f16. Gradients of weights, states and gradients of
  /// states are always f32, or f64 if `dtype` is f64.
  DType weights = DType::f32;
  Index rows = 1;        ///< B
  Index steps = 1;       ///< T; for packed rows, the length of the longest row.
  Index positions = 0;   ///< Packed rows (Batch::cu_seqlens): sum of all row lengths. 0: rows are padded.
  CallFlags flags = {};  ///< What calls have, and what they shall do.
  Restarts restarts = Restarts::zeros;  ///< As Batch::restarts; others than zeros need CallFlag::reset.
  /// Strides of x, y and their gradients; packed rows use `step` alone. All zeros: contiguous; for dx: as x; for dy: as
  /// y.
  SequenceStrides x = {}, y = {}, dx = {}, dy = {};
  SequenceStrides states = {};  ///< Strides of Forward::states and Backward::dstates.
  /// GPUs: alignment of all sequences in bytes: 16, or 2, 4 or 8. Weights and their gradients are always aligned to 16.
  int alignment = 16;

  bool has(CallFlag flag) const { return flags.has(flag); }
  bool operator==(const RecurrentForm&) const = default;
};

/// Name and shape of one parameter of a stack.
struct ParameterShape {
  std::string name;  ///< As in PyTorch: "weight_ih_l0", "bias_hh_l1_reverse", ...
  std::vector<Index> shape;
};

/// Returns the parameters of a stack in the order in which programs take them: by layer, then by direction, then
/// weight_ih, weight_hh, bias_ih, bias_hh. Parameters that the cell or `bias` lacks are left out. Throws
/// Error(invalid_argument) that names the impossible field.
std::vector<ParameterShape> parameter_shapes(const RecurrentSpec& spec);

/// One of the passes of a program.
enum class Pass { forward, backward };

/// A forward pass, and in training a backward pass, of a stack of recurrent layers for one form of call.
///
/// A program is checked, planned and compiled once and never changes. Any number of threads may call it at once, on any
/// streams. It owns no device memory: the caller provides weights, states, workspace and tape. On a GPU a call neither
/// allocates nor waits, and a CUDA graph can record it.
///
/// All tensors of a call are on the program's device. States are [S, layers * directions, B, H] without gaps; state 0
/// is h, and state 1 of an LSTM is c. state_in and dstate_in have the states of RecurrentForm::restarts, too.
class RecurrentProgram {
 public:
  /// Returns the program for this spec, form and execution. The last few hundred programs are cached; others are made.
  /// Any thread may call this. Execution::threads counts on a CPU only.
  ///
  /// Throws Error: invalid_argument that names the impossible field; unsupported, with the reason, for a device, type
  /// or precision that is not available.
  static std::shared_ptr<const RecurrentProgram> get(const RecurrentSpec& spec, const RecurrentForm& form,
                                                     const Execution& execution = {});
  ~RecurrentProgram();

  const RecurrentSpec& spec() const;
  const RecurrentForm& form() const;
  const Execution& execution() const;
  /// Returns parameter_shapes() of the spec.
  const std::vector<ParameterShape>& parameters() const;

  /// Bytes of workspace that a call needs, forward or backward, whichever needs more. The workspace needs no initial
  /// contents. One call may use it at a time.
  std::size_t workspace_bytes() const;
  /// Bytes of the tape that a forward call fills for its backward call; 0 without CallFlag::training.
  std::size_t tape_bytes() const;
  /// Bytes of the packed weights: a copy in the layout that suits this machine. 0 if calls read the weights themselves.
  std::size_t packed_bytes(Pass pass = Pass::forward) const;

  /// Arguments of a forward call.
  struct Forward {
    std::span<const Tensor> weights = {};  ///< In the order of parameters(), each without gaps.
    Batch batch = {};       ///< Rows and steps as in the form. lengths, cu_seqlens and reset are in device memory.
    Tensor x = {};          ///< [B, T, I]; packed: [positions, I].
    Tensor y = {};          ///< [B, T, H * directions]; packed: [positions, H * directions]. Must not overlap x.
    Tensor state_in = {};   ///< [S, layers * directions, state_rows(), H]; no data: zeros.
    Tensor state_out = {};  ///< Written; no data: not wanted. May be state_in without restarts and backward pass.
    Memory workspace = {};  ///< At least workspace_bytes().
    Memory tape = {};       ///< In training: at least tape_bytes(), written.
    Memory packed = {};     ///< Result of pack() for these weights. No data: the call packs them in the workspace.
    /// Required with CallFlag::every_state: [B, T, directions * (S - 1) * H], packed: [positions, C], of f32 (f64 if x
    /// is). Receives after each step all states of the last layer except the output, direction by direction and state
    /// by state; for an LSTM, c_t. Zeros beyond a row's length. Must overlap neither x nor y.
    Tensor states = {};
  };
  /// Computes y and state_out. Positions of y beyond a row's length are set to zero; those of x are not read.
  ///
  /// Returns a number for Backward::pass. It identifies this pass among those of other programs and, on a CPU, of other
  /// lengths and resets. Throws Error(invalid_argument) for arguments that do not match the form.
  std::uint64_t forward(const Context& context, const Forward& call) const;

  /// Arguments of a backward call.
  struct Backward {
    std::span<const Tensor> weights = {};    ///< As in the forward call.
    Batch batch = {};                        ///< As in the forward call.
    Tensor x = {}, y = {}, dy = {};          ///< x and y of the forward call, and the gradient of y.
    Tensor state_in = {};                    ///< As in the forward call.
    Tensor dstate_out = {};                  ///< Gradient of state_out; no data: zeros.
    Tensor dx = {};                          ///< Written; without data with CallFlag::no_input_gradient. Zeros
                                             ///< beyond a row's length. Must overlap neither x nor dy.
    Tensor dstate_in = {};                   ///< Gradient of state_in: written; no data: not wanted.
    std::span<const Tensor> gradients = {};  ///< One per parameter, f32 or f64: overwritten, or added to
                                             ///< with CallFlag::add_gradients.
    Memory workspace = {};                   ///< At least workspace_bytes().
    Memory tape = {};                        ///< As the forward call left it. Overwritten without CallFlag::keep_tape.
    std::uint64_t pass = 0;  ///< Return value of the forward call; 0: unknown. On a CPU the tape has it too.
    Memory packed = {};      ///< Result of pack() for Pass::backward. No data: the call packs.
    Tensor dstates = {};     ///< Gradients of Forward::states; no data: zeros.
  };
  /// Computes the gradients of the forward call that filled the tape. Throws Error(invalid_argument) for arguments that
  /// do not match the form or the tape, or without CallFlag::training.
  void backward(const Context& context, const Backward& call) const;

  /// Packs weights into memory of packed_bytes(). All programs with this spec, types and execution can use the result,
  /// whatever their rows and steps; single steps of a stream have another layout.
  void pack(const Context& context, std::span<const Tensor> weights, const Memory& packed,
            Pass pass = Pass::forward) const;

  /// Returns text that says how each layer runs and why, forward and, in training, backward.
  std::string explain() const;

  struct Impl;

 private:
  template <class>
  friend class Recurrent;
  explicit RecurrentProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the program was moved from.
  Impl& held() const;
};

}  // namespace penstock
