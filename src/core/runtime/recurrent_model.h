#pragma once

#include <string_view>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/int8_kernels.h"
#include "runtime/model.h"
#include "runtime/step_kernels.h"
#include "runtime/tensor_file.h"

namespace penstock::runtime {

/// Where a value lies in the floats of a session.
using Place = Index;

/// A recurrent layer: its kernels, packed weights, and its places in a session.
struct Layer {
  Index input = 0, hidden = 0, heads = 1;
  int states = 1;
  LayerKernels kernels;
  Int8Gates int8_gates;  ///< Instead of kernels, with the members that follow.
  cpu::Int8Matrix int8_ih = {}, int8_hh = {};
  const float* bias = nullptr;
  Index gates = 0;    ///< G
  Place sums = 0;     ///< Of the input [G, H], then of the state.
  Place operand = 0;  ///< A vector, rounded to int8.
  const custom::DerivedCell* custom = nullptr;
  std::size_t panels = 0;  ///< Floats of the packed weights.
  std::size_t packed = 0;  ///< Their offset in Model::packed.
  Place state = 0;         ///< [S, H]
  Place scratch = 0;       ///< Of two-phase cells, or of cells whose units read means.
};

/// A column that is both an input and a target (ops/pointwise/series.h).
struct SharedColumn {
  Index input, target;
  double factor, offset;
};

/// One instruction of a step. What the members mean is up to the kind; x and y are vectors in the session.
struct Instruction {
  enum class Kind : std::uint8_t {
    embedding,     ///< y [n] = row `token` of weight, or of int8
    linear,        ///< y [n] = weight [n, k] x [k] + bias
    int8_linear,   ///< The same by `int8`, with scratch at z
    norm,          ///< y [n] = RMS norm of x [n], after x += z if there is a z, with gain `weight`
    sum,           ///< x [n] += z [n]
    convolution,   ///< y [n] = depthwise convolution of x [n], weight [k, n], with the state at z [k - 1, n]
    recurrence,    ///< y [n] = layer `index` of x [k]
    silu_gate,     ///< y [n] = silu(x [0..n)) x [n..2n)
    add,           ///< y [n] += x [n], as ops::add_last_values() adds
    read_changes,  ///< y [inputs + n] from features x; n columns are shared, and the state is at z [n + 1]
    add_last,      ///< y [horizon, targets] += the last values in features x
  };
  Kind kind;
  Index n = 0, k = 0;
  Place x = 0, y = 0, z = -1;
  const float *weight = nullptr, *bias = nullptr;
  std::size_t index = 0;
  cpu::Int8Matrix int8 = {};
};

/// A model of `penstock train`: one step of it as straight-line code.
class RecurrentModel final : public Model {
 public:
  using FindInt8 = const Int8Kernels* (*)();
  /// Return null after a failure. Without `find_int8`, weights of int8 are refused.
  static Model* open(const char* path, Failure& failure, FindInt8 find_int8 = nullptr);
  static Model* open(std::string_view bytes, Failure& failure, FindInt8 find_int8 = nullptr);

  std::size_t session_bytes() const override;
  Session* make_session(std::byte* memory, void* own) override;

  const StepKernels* kernels = nullptr;
  const Int8Kernels* int8 = nullptr;
  std::vector<Instruction> instructions;
  std::vector<Layer> layers;
  std::vector<SharedColumn> shared;
  double change_scale = 1.0;  ///< Of ops::Changes.
  Index floats = 0;           ///< Of a session; its state is the front of them.
  Place features = 0, answers = 0;
  Buffer packed;

 private:
  bool build(Failure& failure, FindInt8 find_int8);
};

}  // namespace penstock::runtime
