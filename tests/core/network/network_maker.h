#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/instruction_sets.h"
#include "base/random.h"
#include "network/session.h"
#include "support/real_time.h"

namespace penstock::network {

/// A tensor of a test.
struct Tensor {
  Type type = Type::f32;
  Shape shape;
  std::vector<std::byte> bytes;

  template <class T>
  std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

template <class T>
Tensor tensor(Type type, Shape shape, const std::vector<T>& values) {
  Tensor made{type, std::move(shape), std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}
inline Tensor floats(Shape shape, const std::vector<float>& values) {
  return tensor(Type::f32, std::move(shape), values);
}
inline Tensor integers(const std::vector<Index>& values) {
  return tensor(Type::i64, {static_cast<Index>(values.size())}, values);
}

inline Index count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>());
}

/// Numbers between -1 and 1.
inline Tensor noise(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count(shape)));
  for (float& value : values) value = static_cast<float>(random.uniform() * 2 - 1);
  return floats(shape, values);
}

/// Writes networks down.
class Maker {
 public:
  Network network;

  int value(std::string name, Type type = Type::f32, Shape shape = {}) {
    network.values.push_back({std::move(name), type, std::move(shape)});
    return static_cast<int>(network.values.size()) - 1;
  }
  int input(const std::string& name, Shape shape, Type type = Type::f32) {
    network.inputs.push_back(value(name, type, std::move(shape)));
    return network.inputs.back();
  }
  int constant(const Tensor& tensor) {
    const int made = value("constant", tensor.type);
    network.values[made].constant = static_cast<int>(network.constants.size());
    auto owner = std::make_shared<std::vector<std::byte>>(tensor.bytes);
    const std::span<const std::byte> bytes(owner->data(), owner->size());
    network.constants.push_back({tensor.type, tensor.shape, bytes, owner});
    return made;
  }
  int constant(const std::vector<Index>& values) { return constant(integers(values)); }
  /// Adds a node and returns its first result.
  int node(std::string op, std::vector<int> reads, std::vector<Attribute> attributes = {}, int writes = 1) {
    Node made{
        std::move(op), "node" + std::to_string(network.nodes.size()), std::move(reads), {}, std::move(attributes)};
    for (int i = 0; i < writes; ++i) made.writes.push_back(value("value"));
    network.nodes.push_back(std::move(made));
    return network.nodes.back().writes[0];
  }
  void output(int value) { network.outputs.push_back(value); }
};

/// A program in a session of its own. `status` says why there is none.
struct Running {
  Status status;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Session> session;

  Running(const Network& network, const std::vector<Shape>& shapes, PrepareSpectrum prepare_spectrum = nullptr) {
    status = Program::prepare(std::make_shared<const Network>(network), shapes, program, prepare_spectrum);
    if (status.ok()) status = Session::open(program, nullptr, session);
  }
  void set(std::size_t input, const Tensor& tensor) {
    std::memcpy(session->input(input), tensor.bytes.data(), tensor.bytes.size());
  }
  /// Runs the program, which may not allocate; `in_real_time`: which may not call the system, either.
  void run(bool in_real_time = false) {
    (in_real_time ? test::expect_real_time : test::expect_no_calls)([&] {
      session->run();
      return true;
    });
  }
  Tensor output(std::size_t i) const {
    const Shape& shape = program->output_shape(i);
    std::size_t bytes = program->output_type(i) == Type::i64 || program->output_type(i) == Type::f64   ? 8
                        : program->output_type(i) == Type::f32 || program->output_type(i) == Type::i32 ? 4
                                                                                                       : 1;
    for (const Index extent : shape) bytes *= static_cast<std::size_t>(extent);
    Tensor made{program->output_type(i), shape, std::vector<std::byte>(bytes)};
    if (bytes > 0) std::memcpy(made.bytes.data(), session->output(i), bytes);
    return made;
  }
};

/// What a node of an operator makes of tensors: as inputs those in `inputs`, as constants the others.
inline Tensor run_node(const std::string& op, const std::vector<Tensor>& reads, std::vector<Attribute> attributes = {},
                       bool as_inputs = false) {
  Maker maker;
  std::vector<int> numbers;
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const bool is_input = as_inputs && i == 0;
    numbers.push_back(is_input ? maker.input("x", reads[i].shape, reads[i].type) : maker.constant(reads[i]));
    if (is_input) shapes.push_back(reads[i].shape);
  }
  maker.output(maker.node(op, numbers, std::move(attributes)));
  Running running(maker.network, shapes);
  EXPECT_TRUE(running.status.ok()) << op << ": " << running.status.text;
  if (!running.status.ok()) return {};
  if (as_inputs) running.set(0, reads[0]);
  static std::set<std::string> seen;  // a process for each of thousands of runs would take seconds
  running.run(as_inputs && seen.insert(op + " " + std::string(cpu::current_isa())).second);
  return running.output(0);
}

}  // namespace penstock::network
