#pragma once

#include <memory>
#include <span>

#include "penstock/tensor.h"

namespace penstock {

/// A stack of recurrent layers, as `torch.nn.LSTM` and its siblings are.
struct RecurrentSpec {
  std::string cell = "lstm";
  Index input_size = 0;   ///< I >= 1
  Index hidden_size = 0;  ///< H >= 1
  Index heads = 1;        ///< Divides H; the recurrent matrix is block-diagonal with blocks of D = H / heads.
  Index layers = 1;
  Direction direction = Direction::forward;
  Bias bias = Bias::both;
  double dropout = 0.0;  ///< Probability of zeroing an output between layers, in training only; [0, 1).
  /// Limit of the gradient that a step passes to the output of the step before it, each element by itself, in training
  /// only; 0: none. The last step's is limited only by where it comes from (dstate_out); that of the initial output is
  /// limited too, so that a sequence cut into chunks has the same gradients. Dense cells only.
  double gradient_clip = 0.0;

  Index directions() const { return direction == Direction::bidirectional ? 2 : 1; }
  Index output_size() const { return hidden_size * directions(); }
  bool operator==(const RecurrentSpec&) const = default;
};

/// Which steps of which rows exist.
///
/// Padded: B rows of up to T steps each, `lengths` [B] (each 0..T) or null when all rows have T steps.
/// Packed: `cu_seqlens` [B + 1] starts at 0 and never falls; row b owns the steps cu_seqlens[b] .. cu_seqlens[b+1]-1
/// of one long sequence, and T is the longest of them. `lengths` must then be null. On a CPU the positions may also lie
/// step after step (`by_steps`): the first steps of all rows, then the second steps of those that have one, and so on;
/// no row may then be longer than the one before it. So PyTorch has them.
struct Batch {
  Index rows = 1;   ///< B
  Index steps = 1;  ///< T
  const Index* lengths = nullptr;
  const Index* cu_seqlens = nullptr;
  bool by_steps = false;
  /// Of packed rows on a GPU, where a program asks for it (RecurrentForm::falling): [T] in the host's memory, how many
  /// rows have each step. PyTorch's PackedSequence has it under this name.
  const Index* batch_sizes = nullptr;
  /// Padded: [B, T]; packed: [total]. Non-zero: the row's state is set to zero before this step, in the order in which
  /// the steps are walked (a reverse layer comes to it from behind). Null: never.
  const std::uint8_t* reset = nullptr;
};

/// A tensor [B, T, C]: channels are contiguous, the strides of B and T (in elements) are free.
/// Packed batches use `step_stride` alone. Steps beyond a row's length are written as zeros (forward output and
/// input gradients) and never read.
template <class Real>
struct SequenceView {
  Real* data = nullptr;
  Index row_stride = 0;
  Index step_stride = 0;

  /// data [B, T, C], contiguous.
  static SequenceView batch_first(Real* data, Index steps, Index channels) {
    return {data, steps * channels, channels};
  }
  /// data [T, B, C], contiguous.
  static SequenceView time_first(Real* data, Index rows, Index channels) { return {data, channels, rows * channels}; }
  /// data [total, C]: packed rows one after the other, without gaps.
  static SequenceView packed(Real* data, Index channels) { return {data, 0, channels}; }
  explicit operator bool() const { return data != nullptr; }
  // Implicit on purpose, as from Real* to const Real*. NOLINTNEXTLINE(google-explicit-constructor)
  operator SequenceView<const Real>() const requires(!std::is_const_v<Real>) { return {data, row_stride, step_stride}; }
};

/// Everything that the backward pass needs from the forward pass: of one network and one batch, by which backward()
/// knows it. Reused from call to call, it allocates only when a batch is larger than any before. For one call at a
/// time.
template <class Real>
class RecurrentTape {
 public:
  RecurrentTape();
  ~RecurrentTape();
  RecurrentTape(RecurrentTape&&) noexcept;
  RecurrentTape& operator=(RecurrentTape&&) noexcept;

  /// What the library knows of it.
  struct Content;

 private:
  template <class>
  friend class Recurrent;
  /// Throws Error(invalid_argument) if the tape has been moved from.
  Content& content();
  std::unique_ptr<Content> content_;
};

/// A trainable stack of recurrent layers in float or double (a GPU computes in float and in halves).
///
/// A network lives on one device: on the CPU, or on that of a stream, where its weights, their gradients and all
/// scratch stay and every call is put into the stream. Calls with memory of the host work on every device: for a GPU
/// they copy what goes in and what comes out, and wait. Calls with tensors of the device copy nothing, and on a GPU
/// neither wait nor, of a shape that they had before, allocate.
///
/// Weights per layer l and direction (suffix "_reverse"), named as in PyTorch:
///   weight_ih_l{l} [G*H, I_l], weight_hh_l{l} [G*H, H] (heads > 1: [heads, G*D, D]; scan cells: none),
///   bias_ih_l{l} [G*H], bias_hh_l{l} [G*H] (scan cells: none, Bias::both is Bias::single to them);
///   initialised uniformly in +-1/sqrt(H).
/// States, in and out, are [S, layers * directions, B, H]; null in means zeros, null out means not wanted. On a GPU
/// they are floats whatever x is, as weights and gradients are.
///
/// Any number of threads may call forward() and step() of one object at once: each has scratch memory of its own, and
/// all share one set of packed weights. backward() adds to the gradients, so it is for one thread at a time; writing
/// weights or calling weights_changed() is for when nobody computes.
template <class Real>
class Recurrent {
 public:
  struct Parameter {
    std::string name;
    std::vector<Index> shape;
    /// In the host's memory; empty on a GPU, where read() and write() copy.
    std::span<Real> value, gradient;
    /// The same in the device's memory.
    Tensor value_tensor, gradient_tensor;
  };

  /// Throws Error(invalid_argument) naming the field that is impossible.
  explicit Recurrent(const RecurrentSpec& spec, std::uint64_t seed = 0);
  /// The same network, weight for weight, on the device of a stream. Throws Error(unsupported) for a network in double
  /// on a GPU.
  Recurrent(const RecurrentSpec& spec, Stream& stream, std::uint64_t seed = 0);
  ~Recurrent();
  Recurrent(Recurrent&&) noexcept;
  Recurrent& operator=(Recurrent&&) noexcept;

  const RecurrentSpec& spec() const;
  Device device() const;
  /// Weights and gradients go to the device of another stream, and with them all calls from now on. Tapes of before are
  /// of no use any more.
  void move_to(Stream& stream);
  /// Number of values in one row's state: S * layers * directions * H.
  Index state_size() const;

  /// Views into the layer. Call `weights_changed()` after writing to a value.
  std::vector<Parameter>& parameters();
  void weights_changed();
  const std::vector<Parameter>& parameters() const;
  /// The parameter of that name; throws Error(invalid_argument) that lists the names there are.
  Parameter& parameter(std::string_view name);
  void zero_gradients();
  /// Copies of a parameter by its name, to or from the host's memory, from or to any device, and waits for that. Sizes
  /// must be the parameter's.
  void read(std::string_view name, std::span<Real> value) const;
  void read_gradient(std::string_view name, std::span<Real> gradient) const;
  /// What was written takes effect as after weights_changed().
  void write(std::string_view name, std::span<const Real> value);

  /// Writes spec and values as a safetensors file, which replaces `path` whole or not at all. Throws Error(io_failure).
  void save(const std::string& path) const;
  /// Throws Error: io_failure; bad_input for a file that is not sound; incompatible for one of something else.
  static Recurrent load(const std::string& path);
  static Recurrent load(const std::string& path, Stream& stream);

  /// y [B, T, H * directions] from x [B, T, I], which it must not overlap. With a tape, backward() can follow (and
  /// dropout applies, with fresh masks in every such call on the network); x, y and the weights must then stay as they
  /// are until it has.
  ///
  /// `states` [B, T, directions * (S - 1) * H], unless without data: the states but the output of the last layer after
  /// each step, direction by direction and state by state; c_t of an LSTM. Cells with more than one state only.
  void forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y, const Real* state_in,
               Real* state_out, RecurrentTape<Real>* tape = nullptr, const Execution& execution = {},
               SequenceView<Real> states = {}) const;

  /// The same for tensors of the network's device: x [B, T, I] and y, of packed rows [positions, C], in the network's
  /// type, on a GPU in bf16 or f16 too: what is multiplied is then rounded so. The batch's arrays lie on the device as
  /// well, and `steps` of packed rows may be more than the longest has.
  void forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in, const Tensor& state_out,
               RecurrentTape<Real>* tape = nullptr, const Execution& execution = {}, const Tensor& states = {}) const;

  /// Adds to the gradients of all parameters; writes dx [B, T, I], which overlaps neither x nor dy, and dstate_in if
  /// they are wanted (not null). `batch` (its lengths, packed rows and resets included) and `x` are those of the
  /// forward call that filled the tape; the y of that call is read too. `dstates`: gradients of every state, as above;
  /// without data: zeros. Throws Error(invalid_argument) if weights have changed since that call.
  void backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> dy, const Real* dstate_out,
                SequenceView<Real> dx, Real* dstate_in, RecurrentTape<Real>& tape, const Execution& execution = {},
                SequenceView<const Real> dstates = {});
  /// The same for tensors of the network's device. A tape on a GPU serves one backward pass, and `dstates` belong to a
  /// forward call that had `states`.
  void backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out, const Tensor& dx,
                const Tensor& dstate_in, RecurrentTape<Real>& tape, const Execution& execution = {},
                const Tensor& dstates = {});

  /// One step of B rows: x [B, I] -> y [B, H], which overlaps neither x nor the state; the state is updated in place.
  /// Forward direction only. For one row nothing is allocated but on the first call and the first in another precision.
  /// Denormal numbers are what they are on the calling thread, where sequences count them as zeros: threads that take
  /// many steps had better count them so, too, as audio hosts do. A Session does.
  void step(Index rows, const Real* x, Real* y, Real* state, const Execution& execution = {}) const;
  /// The same for tensors of the network's device: x [B, I], y [B, H] and the state.
  void step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws where it was moved from.
  Impl& held() const;
};

extern template class Recurrent<float>;
extern template class Recurrent<double>;

}  // namespace penstock
