#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/recurrent.h"
#include "penstock/tensor.h"

namespace penstock {

/// The form of the calls of a program: everything about them but addresses, lengths and numbers.
struct RecurrentForm {
  /// Of x, y and their gradients. CPU: f32, f64, bf16; GPU: f32, bf16, f16. A CPU stores in bf16 but computes in float,
  /// as Execution::precision says.
  DType dtype = DType::f32;
  /// Of the weights: as `dtype`, or f32 where that is bf16 or f16. Their gradients, and all states and gradients of
  /// states, are f32 always (f64 where `dtype` is).
  DType weights = DType::f32;
  Index rows = 1;       ///< B
  Index steps = 1;      ///< T; of packed rows, the longest one's.
  Index positions = 0;  ///< Packed rows (Batch::cu_seqlens): steps of all rows together. 0: rows are padded.
  /// Of packed rows on a GPU none is longer than the one before, and calls have Batch::batch_sizes. Rows that have
  /// ended then leave the multiprocessors to the others; with how long others are, numbers differ by the order of
  /// summation.
  bool falling = false;
  bool lengths = false;        ///< Calls have Batch::lengths.
  bool reset = false;          ///< Calls have Batch::reset.
  bool training = false;       ///< A forward pass fills a tape, a backward pass follows, and dropout applies.
  bool input_gradient = true;  ///< The backward pass makes dx.
  bool add_gradients = false;  ///< It adds to the gradients of weights, instead of writing them.
  bool every_state = false;    ///< Calls have Forward::states; cells with more than one state only.
  bool step = false;  ///< One step over and over, as of a stream: on a CPU of one row, on a GPU of scan cells, any
                      ///< number of rows in one launch (whose gates are never rounded to `dtype`).
  /// Calls bring no Forward::packed, so packing is a part of each. On a CPU, where that would take longer than it
  /// saves, forward passes of dense cells then read the weights as they lie and multiply in full (not in exact mode);
  /// results of few and of many positions differ as much as the order of summation and `precision` let them.
  bool packs_each_call = false;
  /// Layouts. Packed rows use `step` alone. dx lies like x, and dy like y, unless said otherwise.
  SequenceStrides x = {}, y = {}, dx = {}, dy = {};
  SequenceStrides states = {};  ///< Of Forward::states and Backward::dstates.
  /// GPUs: bytes that the addresses of sequences are multiples of: 16, or 2, 4, 8 where one begins anywhere. Weights
  /// and their gradients begin at multiples of 16 there.
  int alignment = 16;

  bool operator==(const RecurrentForm&) const = default;
};

/// One parameter of a stack, in the order in which programs take them: layer after layer, direction after direction,
/// weight_ih, weight_hh, bias_ih, bias_hh; those that the cell or the bias lack are left out.
struct ParameterShape {
  std::string name;  ///< "weight_ih_l0", "bias_hh_l1_reverse", ... as in PyTorch
  std::vector<Index> shape;
};

/// The parameters of a stack. Throws Error(invalid_argument) naming the field that is impossible.
std::vector<ParameterShape> parameter_shapes(const RecurrentSpec& spec);

/// Which of a program's passes.
enum class Pass { forward, backward };

/// A forward and a backward pass of a stack of recurrent layers for one form of call: checked, planned, and compiled,
/// once. It never changes; any number of threads call it at once, on any streams. It owns no memory of the device:
/// weights, states, workspace and tape are the caller's. Calls on a GPU neither allocate nor wait there, and can be
/// recorded into a CUDA graph.
///
/// States are [S, layers * directions, B, H] without gaps; for LSTM, state 0 is h and state 1 is c. All arguments of a
/// call lie on the program's device.
class RecurrentProgram {
 public:
  /// The program for that spec, form and execution (of which threads count on a CPU only); made if it is not among the
  /// last few hundred that were asked for. Any thread may ask. Throws Error: invalid_argument naming what is
  /// impossible; unsupported with the reason, for a device, type or precision that is not there.
  static std::shared_ptr<const RecurrentProgram> get(const RecurrentSpec& spec, const RecurrentForm& form,
                                                     const Execution& execution = {});
  ~RecurrentProgram();

  const RecurrentSpec& spec() const;
  const RecurrentForm& form() const;
  const Execution& execution() const;
  const std::vector<ParameterShape>& parameters() const;

  /// Of a forward or a backward call, whichever needs more; of any content, for one call at a time.
  std::size_t workspace_bytes() const;
  /// What a forward call leaves for its backward call; 0 unless the form is of training.
  std::size_t tape_bytes() const;
  /// Of what calls read instead of the weights, in a layout for this machine: 0 where they read the weights.
  std::size_t packed_bytes(Pass pass = Pass::forward) const;

  struct Forward {
    std::span<const Tensor> weights;  ///< In the order of parameters(), each without gaps.
    Batch batch;                      ///< Rows and steps of the form; lengths, cu_seqlens and reset lie on the device.
    Tensor x, y;       ///< [B, T, I] and [B, T, H * directions]; packed: [positions, C]. They share no memory.
    Tensor state_in;   ///< No data: zeros.
    Tensor state_out;  ///< Written unless without data; may be state_in where no backward pass follows.
    Memory workspace;
    Memory tape;    ///< Training only: written.
    Memory packed;  ///< What pack() made of these very weights; without data, they are packed in the workspace.
    /// Where the form has every state: [B, T, directions * (S - 1) * H] (packed: [positions, C]) of f32 (f64 where x
    /// is): the states but the output of the last layer after each step, direction by direction and state by state; c_t
    /// of an LSTM. Zeros beyond a row's length.
    Tensor states = {};
  };
  /// Fills y, beyond a row's length with zeros. x is not read there. Returns a number that tells this pass from those
  /// of other programs and, on a CPU, of other lengths and resets: for Backward::pass.
  std::uint64_t forward(const Context& context, const Forward& call) const;

  struct Backward {
    std::span<const Tensor> weights;  ///< As of the forward call.
    Batch batch;
    Tensor x, y, dy;    ///< x and y as of the forward call
    Tensor state_in;    ///< As of the forward call.
    Tensor dstate_out;  ///< No data: zeros.
    Tensor dx;  ///< Written, beyond a row's length with zeros. Of no data exactly if the form has no gradient of x
    Tensor dstate_in;                   ///< Written unless without data.
    std::span<const Tensor> gradients;  ///< Of all parameters, f32 or f64: written, or added to (RecurrentForm).
    Memory workspace;
    Memory tape;             ///< As the forward call left it; may be used up.
    std::uint64_t pass = 0;  ///< What the forward call returned; 0: not known. (On a CPU the tape knows, too.)
    Memory packed;           ///< As of Forward, for Pass::backward.
    Tensor dstates = {};     ///< Gradients of Forward::states; no data: zeros.
  };
  void backward(const Context& context, const Backward& call) const;

  /// Packs weights into memory of packed_bytes(), for calls of all programs of this spec, these types and this
  /// execution, whatever their rows and steps (but steps of streams have a layout of their own).
  void pack(const Context& context, std::span<const Tensor> weights, const Memory& packed,
            Pass pass = Pass::forward) const;

  /// How each layer runs and why, forward and, if the form is of training, backward.
  std::string explain() const;

  struct Impl;

 private:
  explicit RecurrentProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;

  /// Throws where it was moved from.
  Impl& held() const;
};

}  // namespace penstock
