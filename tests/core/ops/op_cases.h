#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/memory/memory.h"
#include "ops/op.h"
#include "oracle/tape.h"
#include "support/half.h"
#include "support/tolerance.h"

/// Ops on any device and in any type of activations, against formulas over oracle::Var, whose gradients are exact.
namespace penstock::test {

using oracle::Var;
using Vars = std::vector<Var>;
using Doubles = std::vector<double>;

/// Rows and steps of a case, with what ops may be told about them.
struct Shape {
  Index rows = 1, steps = 1;
  std::vector<Index> lengths = {};       ///< Empty: all rows have all steps
  std::vector<std::uint8_t> reset = {};  ///< Empty: none

  Index positions() const { return rows * steps; }
  Index length(Index b) const { return lengths.empty() ? steps : lengths[static_cast<std::size_t>(b)]; }
  bool exists(Index position) const { return position % steps < length(position / steps); }
  bool resets(Index position) const { return !reset.empty() && reset[static_cast<std::size_t>(position)] != 0; }
};

enum class Kind {
  activation,  ///< In the target's type
  parameter,   ///< In the type of activations too, as products and gates read them
  master,      ///< Floats
  tokens,      ///< int32
  opaque,      ///< Of a size and layout of the op's own, such as a tape; not compared
};

/// Tensor that an op reads or writes.
struct Tensor {
  std::string name;
  Index count = 0;
  Kind kind = Kind::activation;
  double size = 1.0;  ///< Values lie in -size..size; tokens in 0..size - 1
};

/// An operand of a backward op.
struct Source {
  enum Of { none, input, output, dinput, doutput, column_sums } of = none;
  int index = 0;
  Index width = 0;  ///< column_sums: of dinput `index`
};

/// One op forward and backward: its operands in their order, and what they are by definition.
struct OpCase {
  std::string name;
  Shape shape;
  std::vector<Tensor> inputs, outputs;
  /// All inputs -> all outputs but opaque ones, which it leaves empty. Tokens are values as well.
  std::function<std::vector<Vars>(const std::vector<Vars>& inputs)> formula;
  ops::Op forward;
  std::optional<ops::Op> backward = {};
  std::vector<Source> backward_reads = {}, backward_writes = {};
  Index summed = 1;        ///< Terms of the longest sum, backward pass included
  double roundings = 3.0;  ///< To the type of activations, between arguments and results
  /// The op that makes panels of inputs, for targets that read them: input `panels` then is what it makes.
  std::function<std::optional<ops::Op>(const ops::Target&)> panels = {}, backward_panels = {};
  int panels_input = -1;
  std::vector<int> panels_of = {};
};

/// Runs a case on a device and compares.
class OpRun {
 public:
  OpRun(const OpCase& tested, Device device, DType type) : case_(tested), queue_(device), random_(29) {
    target_.device = device;
    target_.dtype = type;
    target_.rows = tested.shape.rows;
    target_.steps = tested.shape.steps;
    target_.flags.set(CallFlag::lengths, !tested.shape.lengths.empty());
    target_.flags.set(CallFlag::reset, !tested.shape.reset.empty());
    target_.flags.set(CallFlag::training, tested.backward.has_value());
    target_.execution.device = device;
    target_.execution.threads = device.is_cuda() ? 0 : 2;
  }

  void check() {
    draw();
    expect();
    run_forward();
    for (std::size_t i = 0; i < case_.outputs.size(); ++i) {
      if (case_.outputs[i].kind == Kind::opaque) continue;
      EXPECT_TRUE(close(values(*outputs_[i], case_.outputs[i]), want_[i], allowed(false), 1.0))
          << case_.outputs[i].name;
    }
    if (!case_.backward) return;
    run_backward();
    compare_gradients();
  }

 private:
  plan::Storage storage(Kind kind) const {
    const bool whole = kind == Kind::master || target_.dtype == DType::f32;
    return whole ? plan::Storage::f32 : target_.dtype == DType::bf16 ? plan::Storage::bf16 : plan::Storage::f16;
  }
  double allowed(bool backward) const {
    const double exact =
        oracle::tolerance<float>({.summed = case_.summed, .steps = case_.shape.steps, .backward = backward});
    return exact + (target_.dtype == DType::f32
                        ? 0.0
                        : (backward ? 2.0 : 1.0) * case_.roundings * half_unit(storage(Kind::activation)));
  }
  std::size_t bytes_of(const Tensor& tensor) const {
    if (tensor.kind == Kind::tokens) return static_cast<std::size_t>(tensor.count) * sizeof(std::int32_t);
    return static_cast<std::size_t>(tensor.count * plan::size_of(storage(tensor.kind)));
  }
  /// Memory of the device that holds what is no number.
  std::unique_ptr<ops::Buffer> room(std::size_t bytes, int fill = 0xff) {
    auto buffer = std::make_unique<ops::Buffer>(queue_, std::max<std::size_t>(bytes, 16));
    const std::vector<unsigned char> content(buffer->bytes(), static_cast<unsigned char>(fill));
    buffer->upload(content.data(), content.size());
    return buffer;
  }
  std::unique_ptr<ops::Buffer> put(const Doubles& numbers, const Tensor& tensor) {
    auto buffer = room(bytes_of(tensor));
    if (tensor.kind == Kind::tokens) {
      const std::vector<std::int32_t> tokens(numbers.begin(), numbers.end());
      buffer->upload(tokens.data(), tokens.size() * sizeof(std::int32_t));
    } else {
      const std::vector<std::uint8_t> stored = to_storage(numbers, storage(tensor.kind));
      buffer->upload(stored.data(), stored.size());
    }
    return buffer;
  }
  Doubles values(const ops::Buffer& buffer, const Tensor& tensor) const {
    std::vector<std::uint8_t> stored(bytes_of(tensor));
    buffer.download(stored.data(), stored.size());
    return from_storage(stored, storage(tensor.kind));
  }

  Doubles numbers(const Tensor& tensor) {
    Doubles drawn;
    for (Index i = 0; i < tensor.count; ++i) {
      drawn.push_back(tensor.kind == Kind::tokens
                          ? std::floor(random_.uniform() * tensor.size)
                          : rounded(tensor.size * (2.0 * random_.uniform() - 1.0), storage(tensor.kind)));
    }
    return drawn;
  }

  void draw() {
    for (const Tensor& tensor : case_.inputs) {
      given_.push_back(tensor.kind == Kind::opaque ? Doubles() : numbers(tensor));
      inputs_.push_back(tensor.kind == Kind::opaque ? nullptr : put(given_.back(), tensor));
    }
    for (std::size_t i = 0; i < case_.outputs.size(); ++i) {
      const Tensor& tensor = case_.outputs[i];
      const bool read = std::ranges::any_of(case_.backward_reads, [&](const Source& source) {
        return source.of == Source::doutput && source.index == static_cast<int>(i);
      });
      dgiven_.push_back(read ? numbers(tensor) : Doubles());
      doutputs_.push_back(dgiven_.back().empty() ? nullptr : put(dgiven_.back(), tensor));
    }
    lengths_ = room(case_.shape.lengths.size() * sizeof(Index));
    if (target_.has(CallFlag::lengths))
      lengths_->upload(case_.shape.lengths.data(), case_.shape.lengths.size() * sizeof(Index));
    reset_ = room(case_.shape.reset.size());
    if (target_.has(CallFlag::reset)) reset_->upload(case_.shape.reset.data(), case_.shape.reset.size());
  }

  /// Outputs and gradients by definition.
  void expect() {
    oracle::Tape tape;
    std::vector<Vars> leaves;
    for (const Doubles& tensor : given_) {
      Vars vars;
      for (const double value : tensor) vars.push_back(tape.leaf(value));
      leaves.push_back(std::move(vars));
    }
    const std::vector<Vars> results = case_.formula(leaves);
    Var loss = 0.0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      Doubles want;
      for (const Var& result : results[i]) want.push_back(result.value());
      want_.push_back(std::move(want));
      for (std::size_t k = 0; k < dgiven_[i].size(); ++k) loss += results[i][k] * Var(dgiven_[i][k]);
    }
    if (!case_.backward) return;
    const std::vector<double> adjoint = tape.sweep(loss);
    for (const Vars& tensor : leaves) {
      Doubles gradient;
      for (const Var& leaf : tensor) gradient.push_back(adjoint[static_cast<std::size_t>(leaf.node())]);
      dwant_.push_back(std::move(gradient));
    }
  }

  ops::Call call() const {
    ops::Call call;
    call.batch.rows = case_.shape.rows;
    call.batch.steps = case_.shape.steps;
    if (target_.has(CallFlag::lengths)) call.batch.lengths = static_cast<const Index*>(lengths_->data());
    if (target_.has(CallFlag::reset)) call.batch.reset = static_cast<const std::uint8_t*>(reset_->data());
    call.threads = target_.execution.threads;
    call.stream = queue_.stream();
    return call;
  }

  void run(ops::Executable& executable, std::vector<void*> operands) {
    const auto scratch = room(executable.scratch_bytes());
    const auto persistent = room(executable.persistent_bytes(), 0);
    executable.run(call(), {operands.data(), scratch->data(), persistent->data()});
    queue_.synchronize();
  }

  static void* address(const std::unique_ptr<ops::Buffer>& buffer) { return buffer ? buffer->data() : nullptr; }

  void make_panels(const std::function<std::optional<ops::Op>(const ops::Target&)>& making) {
    if (!making) return;
    const std::optional<ops::Op> op = making(target_);
    if (!op) return;
    const std::unique_ptr<ops::Executable> executable = op->prepare(target_);
    auto panels = room(executable->opaque_bytes(0));
    std::vector<void*> operands;
    for (const int input : case_.panels_of)
      operands.push_back(input < 0 ? nullptr : address(inputs_[static_cast<std::size_t>(input)]));
    operands.push_back(panels->data());
    run(*executable, operands);
    inputs_[static_cast<std::size_t>(case_.panels_input)] = std::move(panels);
  }

  void run_forward() {
    make_panels(case_.panels);
    const std::unique_ptr<ops::Executable> executable = case_.forward.prepare(target_);
    std::vector<void*> operands;
    for (const auto& input : inputs_) operands.push_back(address(input));
    for (std::size_t i = 0; i < case_.outputs.size(); ++i) {
      const Tensor& tensor = case_.outputs[i];
      const bool opaque = tensor.kind == Kind::opaque;
      outputs_.push_back(opaque && !target_.has(CallFlag::training)
                             ? nullptr
                             : room(opaque ? executable->opaque_bytes(static_cast<int>(i)) : bytes_of(tensor)));
      operands.push_back(address(outputs_.back()));
    }
    run(*executable, operands);
  }

  /// Gradients of parameters are floats, whatever the type of activations.
  Tensor made(const Source& source) const {
    Tensor tensor = case_.inputs[static_cast<std::size_t>(source.index)];
    if (source.of == Source::column_sums) tensor.count = source.width;
    if (source.of == Source::column_sums || tensor.kind == Kind::parameter) tensor.kind = Kind::master;
    return tensor;
  }

  void run_backward() {
    make_panels(case_.backward_panels);
    const std::unique_ptr<ops::Executable> executable = case_.backward->prepare(target_);
    std::vector<void*> operands;
    for (const Source& source : case_.backward_reads) {
      const auto i = static_cast<std::size_t>(source.index);
      switch (source.of) {
        case Source::input:
          operands.push_back(address(inputs_[i]));
          break;
        case Source::output:
          operands.push_back(address(outputs_[i]));
          break;
        case Source::doutput:
          operands.push_back(address(doutputs_[i]));
          break;
        default:
          operands.push_back(nullptr);
      }
    }
    for (const Source& source : case_.backward_writes) {
      made_.push_back(source.of == Source::none ? nullptr : room(bytes_of(made(source))));
      operands.push_back(address(made_.back()));
    }
    run(*executable, operands);
  }

  void compare_gradients() {
    for (std::size_t i = 0; i < case_.backward_writes.size(); ++i) {
      const Source& source = case_.backward_writes[i];
      if (source.of == Source::none) continue;
      const Tensor tensor = made(source);
      Doubles want = dwant_[static_cast<std::size_t>(source.index)];
      if (source.of == Source::column_sums) {
        Doubles sums(static_cast<std::size_t>(source.width), 0.0);
        for (std::size_t k = 0; k < want.size(); ++k) sums[k % sums.size()] += want[k];
        want = std::move(sums);
      }
      EXPECT_TRUE(close(values(*made_[i], tensor), want, allowed(true), 1.0))
          << (source.of == Source::column_sums ? "sums of the columns of the gradient of " : "gradient of ")
          << tensor.name;
    }
  }

  const OpCase& case_;
  mutable ops::Queue queue_;
  Random random_;
  ops::Target target_;
  std::vector<Doubles> given_, dgiven_, want_, dwant_;
  std::vector<std::unique_ptr<ops::Buffer>> inputs_, outputs_, doutputs_, made_;
  std::unique_ptr<ops::Buffer> lengths_, reset_;
};

}  // namespace penstock::test
