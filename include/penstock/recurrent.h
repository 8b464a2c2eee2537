#pragma once

#include <memory>
#include <span>

#include "penstock/tensor.h"

/// Stacks of recurrent layers that own their weights: whole sequences, single steps, and gradients.
namespace penstock {

/// Describes a stack of recurrent layers such as `torch.nn.LSTM`.
struct RecurrentSpec {
  std::string cell = "lstm";  ///< Name of a cell: one of cells(), or one of your own (cell.h).
  Index input_size = 0;       ///< I: 1 to 2^20.
  Index hidden_size = 0;      ///< H: 1 to 2^20.
  /// Heads: divides H. The recurrent matrix is block-diagonal with `heads` blocks of D = H / heads. 1 for scan cells.
  Index heads = 1;
  Index layers = 1;  ///< 1 to 1024.
  Direction direction = Direction::forward;
  Bias bias = Bias::both;
  double dropout = 0.0;  ///< Probability of zeroing a value between two layers, in training only: [0, 1).
  /// Limit of the recurrent gradient, in training only; 0: no limit. Dense cells only. Each element of the gradient
  /// that a step passes back to the h of the previous step is clamped to [-gradient_clip, gradient_clip]. The gradient
  /// of the final state, which the caller gives to backward(), is not clamped. The gradient of the initial h is, so a
  /// sequence that is cut into chunks has the same gradients.
  double gradient_clip = 0.0;
  /// x is W x, [B, T, G*H] gate by gate, and input_size is G*H: there is no weight_ih, and dx is the gradient of W x.
  /// For one layer of a dense cell in one direction, run by a RecurrentProgram.
  bool projected_input = false;

  /// Returns the number of directions: 1 or 2.
  Index directions() const { return direction == Direction::bidirectional ? 2 : 1; }
  /// Returns the channels of y: H * directions.
  Index output_size() const { return hidden_size * directions(); }
  bool operator==(const RecurrentSpec&) const = default;
};

/// States with which rows start again where Batch::reset is not 0. They lie behind the B initial states in state_in,
/// which then is [S, layers * directions, B + n, H]; so do their gradients in dstate_in. Not for packed rows.
enum class Restarts : std::uint8_t {
  zeros,  ///< n = 0.
  one,    ///< One for all rows: n = 1.
  rows,   ///< One for each row: n = B.
  steps,  ///< One for each step of each row, row after row: n = B * T. Only those at resets are read.
};

/// Returns the states in state_in: B + n.
constexpr Index state_rows(Restarts restarts, Index rows, Index steps) {
  const Index more = restarts == Restarts::steps ? rows * steps : restarts == Restarts::rows ? rows : 0;
  return rows + (restarts == Restarts::one ? 1 : more);
}

/// Says which time steps each row of a batch has.
///
/// Padded: B rows with up to T steps each. `lengths` [B] holds the steps of each row, 0 to T; null: all rows have T.
///
/// Packed: `cu_seqlens` [B + 1] holds the row offsets. It starts at 0 and never decreases. Row b owns the positions
/// cu_seqlens[b] to cu_seqlens[b + 1] - 1 of one array of positions. T is the length of the longest row, and `lengths`
/// must be null.
struct Batch {
  Index rows = 1;   ///< B
  Index steps = 1;  ///< T
  const Index* lengths = nullptr;
  const Index* cu_seqlens = nullptr;
  /// Packed rows on a CPU: the positions are in time order, as in PyTorch's PackedSequence. The first steps of all rows
  /// come first, then the second steps of the rows that have one, and so on. No row may be longer than the one before.
  bool by_steps = false;
  /// Packed rows on a GPU whose program has CallFlag::sorted (recurrent_program.h): [T] in host memory, the
  /// number of rows that have each step. PyTorch's PackedSequence has the same field. Null otherwise.
  const Index* batch_sizes = nullptr;
  /// Padded: [B, T]; packed: [positions]. A value other than 0 sets the row's state to zero, or to that of `restarts`,
  /// before this step. The order is that of the computation: a reverse layer resets before this step on its way from
  /// the end. Null: no resets.
  const std::uint8_t* reset = nullptr;
  Restarts restarts = Restarts::zeros;
};

/// Returns the states of each layer and direction in the state_in of a batch: B + n, as Restarts says.
constexpr Index state_rows(const Batch& batch) { return state_rows(batch.restarts, batch.rows, batch.steps); }

/// A view of a sequence [B, T, C] with contiguous channels and free strides of B and T, in elements.
///
/// Packed batches use `step_stride` alone. Positions beyond a row's length are never read; outputs and input gradients
/// are written there as zeros.
template <class Real>
struct SequenceView {
  Real* data = nullptr;
  Index row_stride = 0;   ///< Elements from a row to the next.
  Index step_stride = 0;  ///< Elements from a step to the next.

  /// Returns a view of contiguous data [B, T, C].
  static SequenceView batch_first(Real* data, Index steps, Index channels) {
    return {data, steps * channels, channels};
  }
  /// Returns a view of contiguous data [T, B, C].
  static SequenceView time_first(Real* data, Index rows, Index channels) { return {data, channels, rows * channels}; }
  /// Returns a view of packed rows: contiguous data [positions, C].
  static SequenceView packed(Real* data, Index channels) { return {data, 0, channels}; }
  explicit operator bool() const { return data != nullptr; }
  // Implicit on purpose, as from Real* to const Real*. NOLINTNEXTLINE(google-explicit-constructor)
  operator SequenceView<const Real>() const requires(!std::is_const_v<Real>) { return {data, row_stride, step_stride}; }
};

/// Holds what a forward pass saves for its backward pass.
///
/// A tape can be reused for any number of calls. It allocates only when a batch is larger than all batches before. One
/// call may use it at a time. backward() checks that the tape was filled by the same network and the same batch.
template <class Real>
class RecurrentTape {
 public:
  RecurrentTape();
  ~RecurrentTape();
  RecurrentTape(RecurrentTape&&) noexcept;
  RecurrentTape& operator=(RecurrentTape&&) noexcept;

  /// Internal.
  struct Content;

 private:
  template <class>
  friend class Recurrent;
  /// Throws Error(invalid_argument) if the tape has been moved from.
  Content& content();
  std::unique_ptr<Content> content_;
};

/// A trainable stack of recurrent layers with its weights, in float or double.
///
/// A network lives on one device: the CPU, or the device of a Stream (a queue of work, tensor.h). Its weights,
/// gradients and scratch memory stay there. On a GPU it computes in float, bf16 or f16, never in double.
///
/// - Calls with pointers use host memory and work on every device. On a GPU they copy inputs and outputs and wait.
/// - Calls with tensors use memory of the network's device and copy nothing. On a GPU they are queued on the stream and
///   do not wait. They allocate nothing if the network has seen the same shape before.
///
/// Parameters of layer l, for a cell with G gates, S states and I_l inputs of that layer, with suffix "_reverse" for a
/// reverse direction, are named as in PyTorch:
///
/// - weight_ih_l{l} [G*H, I_l]
/// - weight_hh_l{l} [G*H, H]; with heads > 1: [heads, G*D, D]; scan cells have none
/// - bias_ih_l{l} [G*H]; of a cell with K learnt vectors (cell.h) [(G + K)*H]
/// - bias_hh_l{l} [G*H]; scan cells have none, so Bias::both means Bias::single for them
///
/// Initial values are uniform in +-1/sqrt(H).
///
/// States, in and out, are [S, layers * directions, B, H]. A null input state means zeros; a null output state is not
/// written. On a GPU weights, gradients and states are f32 whatever the type of x is.
///
/// Threads: any number of threads may call forward() and step() of one object at once. Each thread has its own scratch
/// memory, and all share one set of packed weights. backward() adds to the gradients, so only one thread may call it at
/// a time. Nobody may compute while weights are written or weights_changed() runs.
///
/// On every device, all calls throw Error(invalid_argument) for impossible shapes, strides or overlaps and for an
/// object that was moved from.
template <class Real>
class Recurrent {
 public:
  struct Parameter {
    std::string name;
    std::vector<Index> shape;
    /// Value and gradient in host memory; empty on a GPU, where read() and write() copy.
    std::span<Real> value, gradient;
    /// Value and gradient in memory of the network's device.
    Tensor value_tensor, gradient_tensor;
  };

  /// Makes a network on the CPU with initial values from `seed`. Throws Error(invalid_argument) that names the
  /// impossible field of `spec`.
  explicit Recurrent(const RecurrentSpec& spec, std::uint64_t seed = 0);
  /// Makes a network on the device of `stream`, with the same initial values as on the CPU. Also throws
  /// Error(unsupported) for double on a GPU.
  Recurrent(const RecurrentSpec& spec, Stream& stream, std::uint64_t seed = 0);
  ~Recurrent();
  Recurrent(Recurrent&&) noexcept;
  Recurrent& operator=(Recurrent&&) noexcept;

  const RecurrentSpec& spec() const;
  Device device() const;
  /// Moves weights and gradients to the device of `stream`; later calls run there. Tapes that were filled before become
  /// invalid.
  void move_to(Stream& stream);
  /// Returns the number of values in one row's state: S * layers * directions * H.
  Index state_size() const;

  /// Returns all parameters as views into the network. Call weights_changed() after writing to a value.
  std::vector<Parameter>& parameters();
  const std::vector<Parameter>& parameters() const;
  /// Tells the network that parameters were written through a view, so it packs the weights again.
  void weights_changed();
  /// Returns the parameter `name`. Throws Error(invalid_argument) that lists all names if there is none.
  Parameter& parameter(std::string_view name);
  /// Sets the gradients of all parameters to zero.
  void zero_gradients();
  /// Copies the values of a parameter from the network's device to host memory, and waits. `value` must have the size
  /// of the parameter.
  void read(std::string_view name, std::span<Real> value) const;
  /// Copies the gradient of a parameter from the network's device to host memory, and waits.
  void read_gradient(std::string_view name, std::span<Real> gradient) const;
  /// Copies values from host memory to a parameter on the network's device, waits, and calls weights_changed().
  void write(std::string_view name, std::span<const Real> value);

  /// Writes spec and values as a safetensors file. `path` is replaced whole or not at all. Throws Error(io_failure).
  void save(const std::string& path) const;
  /// Reads a network that save() wrote. Throws Error: io_failure if the file cannot be read; bad_input for a damaged
  /// file; incompatible for a sound file with other contents.
  static Recurrent load(const std::string& path);
  /// Reads a network that save() wrote and moves it to the device of `stream`.
  static Recurrent load(const std::string& path, Stream& stream);

  /// Computes y [B, T, H * directions] from x [B, T, I]. y must not overlap x.
  ///
  /// With a tape, dropout applies, with new masks in every call, and backward() may follow. Until then x, y and the
  /// weights must not change.
  ///
  /// `states` [B, T, directions * (S - 1) * H], if it has data, receives after each step all states of the last layer
  /// except the output, direction by direction and state by state. For an LSTM this is c_t. Only for cells with more
  /// than one state. Must overlap neither x nor y.
  void forward(const Batch& batch, SequenceView<const Real> x, SequenceView<Real> y, const Real* state_in,
               Real* state_out, RecurrentTape<Real>* tape = nullptr, const Execution& execution = {},
               SequenceView<Real> states = {}) const;

  /// Computes y from x for tensors on the network's device: [B, T, C], for packed rows [positions, C].
  ///
  /// Their dtype is that of the network. On a GPU it may also be bf16 or f16; the operands of products are then rounded
  /// to it. The arrays of `batch` are on the device too, except batch_sizes. For packed rows, `steps` may be larger
  /// than the length of the longest row.
  void forward(const Batch& batch, const Tensor& x, const Tensor& y, const Tensor& state_in, const Tensor& state_out,
               RecurrentTape<Real>* tape = nullptr, const Execution& execution = {}, const Tensor& states = {}) const;

  /// Computes the gradients of the forward call that filled `tape`.
  ///
  /// Adds to the gradients of all parameters. Writes dx [B, T, I], which must overlap neither x nor dy, and dstate_in,
  /// each unless it is null. `batch` (with its lengths, offsets and resets) and `x` must be those of the forward call;
  /// the pass also reads that call's y. `dstates` holds the gradients of `states`; no data: zeros.
  ///
  /// Throws Error(invalid_argument) if the weights have changed since the forward call, or if the tape belongs to
  /// another network, batch or precision.
  void backward(const Batch& batch, SequenceView<const Real> x, SequenceView<const Real> dy, const Real* dstate_out,
                SequenceView<Real> dx, Real* dstate_in, RecurrentTape<Real>& tape, const Execution& execution = {},
                SequenceView<const Real> dstates = {});
  /// Computes the gradients for tensors on the network's device. On a GPU a tape serves one backward pass, and
  /// `dstates` requires a forward call with `states`.
  void backward(const Batch& batch, const Tensor& x, const Tensor& dy, const Tensor& dstate_out, const Tensor& dx,
                const Tensor& dstate_in, RecurrentTape<Real>& tape, const Execution& execution = {},
                const Tensor& dstates = {});

  /// Computes one time step of B rows: x [B, I] to y [B, H], and updates `state` in place. y must overlap neither x nor
  /// the state. Direction::forward only.
  ///
  /// With one row it allocates only on the first call and on the first call with another precision. Whether denormal
  /// numbers count as zeros is up to the calling thread, whereas whole sequences always count them as zeros. Turn on
  /// flush-to-zero in threads that take many steps, as audio hosts do; a Session does it by itself.
  void step(Index rows, const Real* x, Real* y, Real* state, const Execution& execution = {}) const;
  /// Computes one time step for tensors on the network's device: x [B, I], y [B, H], and the state.
  void step(const Tensor& x, const Tensor& y, const Tensor& state, const Execution& execution = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;

  /// Throws Error(invalid_argument) if the network was moved from.
  Impl& held() const;
};

extern template class Recurrent<float>;
extern template class Recurrent<double>;

}  // namespace penstock
