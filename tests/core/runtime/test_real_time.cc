// A step allocates nothing, locks nothing and makes no system call: allocations and locks are counted, and a filter of
// the kernel ends a process at its first call.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/runtime/handles.h"
#include "core/runtime/models.h"
#include "core/runtime/networks.h"
#include "oracle/written_cells.h"
#include "penstock/cell.h"
#include "penstock/quantize.h"
#include "support/real_time.h"

#ifdef PENSTOCK_COUNTS_CALLS

namespace penstock::test {
namespace {

TEST(RuntimeRealTime, TheFilterEndsAProcessThatCalls) {
  const int status = status_without_calls([] { return ::getppid() > 0; });
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
}

TEST(RuntimeRealTime, TheCountersCount) {
  const long before = counted_calls;
  std::free(std::malloc(1));
  std::free(std::aligned_alloc(64, 64));
  void* memory = nullptr;
  EXPECT_EQ(::posix_memalign(&memory, 64, 64), 0);
  std::free(memory);
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  ::pthread_mutex_lock(&mutex);
  ::pthread_mutex_unlock(&mutex);
  pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
  ::pthread_rwlock_rdlock(&shared);
  ::pthread_rwlock_unlock(&shared);
  EXPECT_EQ(counted_calls - before, 8);
}

/// Chunks of 4 steps and single steps; wrong rows, and states and resets between them.
class Player {
 public:
  Player(const RuntimeModel& model, const RuntimeSession& session, bool with_states = true)
      : session_(session.get()),
        info_(model.info()),
        rows_(4 * info_.inputs),
        outputs_(4 * info_.outputs),
        state_(with_states ? info_.state_size : 0) {}

  bool play(int rounds) {
    bool fine = true;
    for (int i = 0; i < rounds; ++i) {
      for (std::size_t j = 0; j < rows_.size(); ++j) {
        rows_[j] = static_cast<float>((static_cast<std::size_t>(i) * 7 + j) % 13) * 0.25F - 1.5F;
      }
      fine = fine && penstock_session_chunk(session_, rows_.data(), rows_.size(), outputs_.data(), outputs_.size(),
                                            &error_) == PENSTOCK_OK;
      fine = fine && step(info_.inputs) == PENSTOCK_OK && step(info_.inputs + 1) == PENSTOCK_INVALID_ARGUMENT;
      fine = fine && (state_.empty() ||
                      penstock_session_get_state(session_, state_.data(), state_.size(), &error_) == PENSTOCK_OK);
      if (i % 100 == 0) fine = fine && penstock_session_reset(session_, &error_) == PENSTOCK_OK;
    }
    return fine;
  }

 private:
  penstock_status step(std::size_t count) {
    return penstock_session_step(session_, rows_.data(), count, outputs_.data(), info_.outputs, &error_);
  }

  penstock_session* session_;
  penstock_model_info info_;
  std::vector<float> rows_, outputs_, state_;
  penstock_error error_ = {};
};

void expect_real_time(const RuntimeModel& model, const RuntimeSession& session, int rounds) {
  Player player(model, session);
  test::expect_real_time([&] { return player.play(rounds); });
}

void expect_real_time(const RuntimeModel& model, int rounds) {
  const RuntimeSession session(model);
  expect_real_time(model, session, rounds);
}

TEST(RuntimeRealTime, EveryCellRunsWithoutAllocationsLocksAndCalls) {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  for (const WrittenCell& cell : {written_lstm(), written_norm_lstm(), written_leaky()}) {
    names.emplace_back(define_cell(cell.definition, cell.equations).name);
  }
  for (const std::string& name : names) {
    for (const Index hidden : {8, 40, 128}) {
      SCOPED_TRACE(name + " of " + std::to_string(hidden));
      const std::string file = file_of(series_model(name, hidden));
      expect_real_time(RuntimeModel(file.data(), file.size()), 1000);
    }
  }
}

TEST(RuntimeRealTime, ModelsOfInt8RunWithoutAllocationsLocksAndCalls) {
  for (const std::string name : {"lstm", "gru", "mingru"}) {
    SCOPED_TRACE(name);
    const Model floats = series_model(name, 40);
    const std::string file = file_of(floats.with_int8(int8_layers(floats)));
    penstock_model* model = nullptr;
    ASSERT_EQ(penstock_int8_model_open_memory(file.data(), file.size(), &model, nullptr), PENSTOCK_OK);
    expect_real_time(RuntimeModel(model), 1000);
  }
}

namespace streams {

using namespace onnx;  // NOLINT(google-build-using-namespace): the file's own vocabulary
using Extents = std::vector<Index>;

/// A stream of one input, x, and the shape of a chunk of it.
struct Stream {
  std::string name;
  Graph graph;
  Extents chunk;
};

ProtobufMessage weights(const std::string& name, const Extents& shape) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  return tensor(name, shape, numbers(static_cast<std::size_t>(count), static_cast<float>(count)));
}

/// Filters [2 bins, 1, size] of a windowed transform: cosines, then sines.
ProtobufMessage fourier(const std::string& name, Index size) {
  std::vector<float> values;
  for (Index map = 0; map < size + 2; ++map) {
    for (Index n = 0; n < size; ++n) {
      const double turn = 2 * std::numbers::pi / static_cast<double>(size), place = static_cast<double>(n);
      const double angle = turn * static_cast<double>(map % (size / 2 + 1) * n % size);
      const double window = 0.5 - 0.5 * std::cos(turn * place);
      values.push_back(static_cast<float>(window * (map <= size / 2 ? std::cos(angle) : -std::sin(angle))));
    }
  }
  return tensor(name, {size + 2, 1, size}, values);
}

/// One of each kind of operator that keeps frames or has kernels of its own.
std::vector<Stream> all() {
  const auto list = [](const std::string& name, const Extents& values) { return attribute(name, values); };
  return {
      {"convolutions",
       {{value("x", {1, 3, -1})},
        {node("Conv", {"x", "w1"}, {"a"}, {list("pads", {4, 0}), list("dilations", {2})}),
         node("LeakyRelu", {"a"}, {"b"}),
         node("Conv", {"b", "w2"}, {"c"}, {list("pads", {2, 0}), attribute("group", 4)}),
         node("ConvTranspose", {"c", "w3"}, {"d"}, {list("strides", {3})}),
         node("Slice", {"d", "zero", "end", "two"}, {"y"})},
        {weights("w1", {4, 3, 3}), weights("w2", {4, 1, 3}), weights("w3", {4, 4, 5}), integers("zero", {1}, {0}),
         integers("end", {1}, {-2}), integers("two", {1}, {2})},
        {value("y", {1, 4, -2})}},
       {1, 3, 4}},
      {"images",
       {{value("x", {1, 2, -1, 6})},
        {node("Conv", {"x", "w1"}, {"a"}, {list("pads", {2, 1, 0, 1}), list("strides", {1, 2})}),
         node("BatchNormalization", {"a", "one", "half", "one", "half"}, {"b"}),
         node("ConvTranspose", {"b", "w2"}, {"c"}, {list("strides", {1, 2}), list("pads", {0, 1, 0, 1})}),
         node("MaxPool", {"c"}, {"d"}, {list("kernel_shape", {3, 2}), list("pads", {2, 0, 0, 0})}),
         node("Transpose", {"d"}, {"e"}, {list("perm", {2, 0, 1, 3})}), node("Reshape", {"e", "rows"}, {"f"}),
         node("GRU", {"f", "w", "r"}, {"y"}, {attribute("hidden_size", 5)})},
        {weights("w1", {4, 2, 3, 3}), weights("w2", {4, 4, 1, 3}), weights("one", {4}),
         tensor("half", {4}, {.5, .5, .5, .5}), integers("rows", {3}, {-1, 1, 16}), weights("w", {1, 15, 16}),
         weights("r", {1, 15, 5})},
        {value("y", {-2, 1, 1, 5})}},
       {1, 2, 3, 6}},
      {"pools",
       {{value("x", {1, 3, -1})},
        {node("MaxPool", {"x"}, {"a"}, {list("kernel_shape", {2}), list("strides", {2})}),
         node("AveragePool", {"a"}, {"y"}, {list("kernel_shape", {3}), list("strides", {2})})},
        {},
        {value("y", {1, 3, -2})}},
       {1, 3, 8}},
      {"transforms",
       {{value("x", {1, -1})},
        {node("STFT", {"x", "hop", "window"}, {"a"}), node("ReduceL2", {"a"}, {"y"}, {list("axes", {-1})}),
         node("Unsqueeze", {"x", "one"}, {"b"}), node("Conv", {"b", "filters"}, {"z"}, {list("strides", {32})})},
        {integers("hop", {}, {32}), weights("window", {64}), integers("one", {1}, {1}), fourier("filters", 64)},
        {value("y", {1, -2, 33, 1}), value("z", {1, 66, -3})}},
       {1, 64}},
      {"rows",
       {{value("x", {1, -1, 8})},
        {node("LayerNormalization", {"x", "gain", "gain"}, {"a"}), node("Reshape", {"a", "groups"}, {"b"}),
         node("Einsum", {"b", "w"}, {"c"}, {attribute("equation", "btgi,gih->btgh")}), node("Softmax", {"c"}, {"d"}),
         node("CumSum", {"d", "time"}, {"e"}), node("Reshape", {"e", "flat"}, {"f"}), node("MatMul", {"f", "m"}, {"g"}),
         node("Erf", {"g"}, {"h"}), node("ReduceMean", {"h"}, {"i"}, {list("axes", {2})}),
         node("Sub", {"h", "i"}, {"y"}), node("TopK", {"y", "most"}, {"z", "best"})},
        {weights("gain", {8}), integers("groups", {4}, {1, -1, 2, 4}), weights("w", {2, 4, 3}),
         integers("time", {}, {1}), integers("flat", {3}, {1, -1, 6}), weights("m", {6, 20}),
         integers("most", {1}, {3})},
        {value("y", {1, -2, 20}), value("z", {1, -2, 3}), value("best", {1, -2, 3}, kInt64)}},
       {1, 4, 8}},
      {"bytes",
       {{value("x", {-1, 1, 8})},
        {node("DynamicQuantizeLinear", {"x"}, {"a", "scale", "zero"}), node("MatMulInteger", {"a", "w", "zero"}, {"b"}),
         node("Cast", {"b"}, {"c"}, {attribute("to", kFloat)}), node("Mul", {"c", "scale"}, {"d"}),
         node("RNN", {"d", "v", "r"}, {"y"}, {attribute("hidden_size", 4)})},
        {integers("w", {8, 5}, std::vector<Index>(40, 3), kInt8), weights("v", {1, 4, 5}), weights("r", {1, 4, 4})},
        {value("y", {-2, 1, 1, 4})}},
       {1, 1, 8}},
  };
}

}  // namespace streams

/// The full library's session, by the fast transforms that it has alone, and the C runtime's.
void expect_real_time(const Network& network, const std::vector<Index>& chunk) {
  NetworkSession session(network, {{"x", chunk}}, true);
  test::expect_real_time([&] {
    for (int i = 0; i < 100; ++i) session.run();
    session.reset();
    return true;
  });
  const std::string file = file_of(network);
  const std::vector<std::int64_t> extents(chunk.begin(), chunk.end());
  expect_real_time(open_network(file, {{"x", extents.data(), extents.size()}}), 100);
}

TEST(RuntimeRealTime, NetworksRunWithoutAllocationsLocksAndCalls) {
  const Network network = listener();
  for (const Network& each : {network, network.with_int8(int8_layers(network))}) {
    expect_real_time(open_network(file_of(each)), 1000);
  }
}

TEST(RuntimeRealTime, StreamsOfEveryOperatorRunWithoutAllocationsLocksAndCalls) {
  for (const auto& [name, graph, chunk] : streams::all()) {
    SCOPED_TRACE(name);
    const std::string file = onnx::model(graph);
    const Network network = Network::import_onnx(std::as_bytes(std::span(file)), {.stream = name != "bytes"});
    expect_real_time(network, chunk);
    const std::vector<std::string> layers = int8_layers(network);
    if (!layers.empty()) expect_real_time(network.with_int8(layers), chunk);
  }
}

/// The fade ends among the steps.
void expect_real_time_fade(const RuntimeModel& first, const RuntimeModel& second) {
  const RuntimeSession session(first);
  penstock_session* next = nullptr;
  ASSERT_EQ(penstock_session_open(second.get(), nullptr, 0, &next, nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_session_replace(session.get(), next, 1000, nullptr), PENSTOCK_OK);
  Player player(first, session, false);  // the states of the two have different sizes
  test::expect_real_time([&] { return player.play(1000); });
}

TEST(RuntimeRealTime, AFadeRunsWithoutAllocationsLocksAndCalls) {
  const std::string one = file_of(series_model("lstm", 16)), two = file_of(series_model("gru", 24));
  expect_real_time_fade(RuntimeModel(one.data(), one.size()), RuntimeModel(two.data(), two.size()));
  const Network network = listener();
  expect_real_time_fade(open_network(file_of(network)), open_network(file_of(network.with_int8(int8_layers(network)))));
}

}  // namespace
}  // namespace penstock::test

#endif
