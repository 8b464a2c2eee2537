// Every impossible argument is refused, by a message that names it.

#include <cmath>
#include <functional>

#include "nn/check_cell.h"
#include "support/expect_error.h"

namespace penstock::test {
namespace {

/// `call` must throw Error(invalid_argument) with a message that contains all of `words`.
void expect_refused(const std::string& what, const std::vector<std::string>& words, const std::function<void()>& call) {
  SCOPED_TRACE(what);
  for (const std::string& word : words) expect_error(ErrorCode::invalid_argument, word, call);
}

TEST(SpecArguments, AreRefusedByName) {
  const struct {
    const char* what;
    std::vector<std::string> words;
    std::function<void(RecurrentSpec&)> spoil;
  } mistakes[] = {
      {"unknown cell", {"nonsense", "lstm", "mingru"}, [](RecurrentSpec& s) { s.cell = "nonsense"; }},
      {"empty cell", {"lstm"}, [](RecurrentSpec& s) { s.cell = ""; }},
      {"input_size 0", {"input_size", "0"}, [](RecurrentSpec& s) { s.input_size = 0; }},
      {"input_size -1", {"input_size", "-1"}, [](RecurrentSpec& s) { s.input_size = -1; }},
      {"hidden_size 0", {"hidden_size", "0"}, [](RecurrentSpec& s) { s.hidden_size = 0; }},
      {"hidden_size -3", {"hidden_size", "-3"}, [](RecurrentSpec& s) { s.hidden_size = -3; }},
      {"heads 0", {"heads", "0"}, [](RecurrentSpec& s) { s.heads = 0; }},
      {"heads -2", {"heads", "-2"}, [](RecurrentSpec& s) { s.heads = -2; }},
      {"heads that do not divide", {"heads", "3", "8"}, [](RecurrentSpec& s) { s.heads = 3; }},
      {"more heads than units", {"heads", "16"}, [](RecurrentSpec& s) { s.heads = 16; }},
      {"heads of a scan cell", {"heads", "minlstm"}, [](RecurrentSpec& s) { s.cell = "minlstm", s.heads = 2; }},
      {"layers 0", {"layers", "0"}, [](RecurrentSpec& s) { s.layers = 0; }},
      {"layers -1", {"layers", "-1"}, [](RecurrentSpec& s) { s.layers = -1; }},
      {"dropout 1", {"dropout", "1"}, [](RecurrentSpec& s) { s.dropout = 1.0; }},
      {"dropout -0.1", {"dropout", "-0.1"}, [](RecurrentSpec& s) { s.dropout = -0.1; }},
      {"dropout NaN", {"dropout", "nan"}, [](RecurrentSpec& s) { s.dropout = std::nan(""); }},
      {"gradient_clip -1", {"gradient_clip", "-1"}, [](RecurrentSpec& s) { s.gradient_clip = -1.0; }},
      {"gradient_clip NaN", {"gradient_clip", "nan"}, [](RecurrentSpec& s) { s.gradient_clip = std::nan(""); }},
      {"gradient_clip of a scan cell",
       {"gradient_clip", "0", "mingru"},
       [](RecurrentSpec& s) { s.cell = "mingru", s.gradient_clip = 1.0; }},
      {"a direction that is none",
       {"direction must be a value of its enumeration, 0 to 2, not 3"},
       [](RecurrentSpec& s) { s.direction = Direction{3}; }},
      {"a bias that is none",
       {"bias must be a value of its enumeration, 0 to 2, not -1"},
       [](RecurrentSpec& s) { s.bias = Bias{-1}; }},
      {"weights beyond memory", {"hidden_size"}, [](RecurrentSpec& s) { s.hidden_size = Index{1} << 40; }},
  };
  for (const auto& mistake : mistakes) {
    RecurrentSpec spec{.cell = "lstm", .input_size = 4, .hidden_size = 8};
    mistake.spoil(spec);
    expect_refused(mistake.what, mistake.words, [&] { Recurrent<float> network(spec); });
  }
}

/// A sound call of a network that single arguments are then spoilt in.
struct Call {
  explicit Call(RecurrentSpec spec = {.cell = "gru", .input_size = 2, .hidden_size = 3}) : network(spec) {}

  Recurrent<float> network;
  std::vector<Index> lengths = {5, 0, 2}, cu_seqlens = {0, 5, 5, 7};
  Batch batch{.rows = 3, .steps = 5};
  Execution execution;
  std::vector<float> values = std::vector<float>(1024);
  SequenceView<const float> x{values.data(), 10, 2}, dy{values.data(), 15, 3};
  SequenceView<float> y{values.data() + 512, 15, 3}, dx{values.data() + 512, 10, 2};
  RecurrentTape<float> tape;

  void forward() { network.forward(batch, x, y, nullptr, nullptr, &tape, execution); }
  void backward() { network.backward(batch, x, dy, nullptr, dx, nullptr, tape, execution); }
};

struct Mistake {
  const char* what;
  std::vector<std::string> words;
  std::function<void(Call&)> spoil;
};

std::vector<Mistake> batch_mistakes() {
  return {
      {"rows 0", {"rows", "0"}, [](Call& c) { c.batch.rows = 0; }},
      {"rows -1", {"rows", "-1"}, [](Call& c) { c.batch.rows = -1; }},
      {"steps 0", {"steps", "0"}, [](Call& c) { c.batch.steps = 0; }},
      {"steps -7", {"steps", "-7"}, [](Call& c) { c.batch.steps = -7; }},
      {"a length beyond T",
       {"lengths", "6", "5"},
       [](Call& c) { c.lengths[2] = 6, c.batch.lengths = c.lengths.data(); }},
      {"a negative length", {"lengths", "-1"}, [](Call& c) { c.lengths[1] = -1, c.batch.lengths = c.lengths.data(); }},
      {"cu_seqlens that start late",
       {"cu_seqlens", "1"},
       [](Call& c) { c.cu_seqlens[0] = 1, c.batch.cu_seqlens = c.cu_seqlens.data(); }},
      {"cu_seqlens that fall",
       {"cu_seqlens", "4"},
       [](Call& c) { c.cu_seqlens[2] = 4, c.batch.cu_seqlens = c.cu_seqlens.data(); }},
      {"a packed row longer than T",
       {"cu_seqlens", "6", "5"},
       [](Call& c) {
         c.cu_seqlens = {0, 6, 6, 7}, c.batch.cu_seqlens = c.cu_seqlens.data();
       }},
      {"lengths and cu_seqlens",
       {"lengths", "cu_seqlens"},
       [](Call& c) { c.batch.lengths = c.lengths.data(), c.batch.cu_seqlens = c.cu_seqlens.data(); }},
      {"threads -1", {"threads", "-1"}, [](Call& c) { c.execution.threads = -1; }},
      {"threads 1000000", {"threads", "1000000"}, [](Call& c) { c.execution.threads = 1000000; }},
      {"scan of a dense cell", {"scan", "gru"}, [](Call& c) { c.execution.algorithm = Algorithm::scan; }},
      {"an algorithm that is none",
       {"algorithm must be a value of its enumeration, 0 to 2, not 7"},
       [](Call& c) { c.execution.algorithm = Algorithm{7}; }},
      {"a precision that is none",
       {"precision must be a value of its enumeration, 0 to 4, not 5"},
       [](Call& c) { c.execution.precision = Precision{5}; }},
      {"no x", {"x"}, [](Call& c) { c.x = {}; }},
  };
}

TEST(CallArguments, AreRefusedForwards) {
  std::vector<Mistake> mistakes = batch_mistakes();
  mistakes.push_back({"no y", {"y"}, [](Call& c) { c.y = {}; }});
  for (const Mistake& mistake : mistakes) {
    Call call;
    mistake.spoil(call);
    expect_refused(mistake.what, mistake.words, [&] { call.forward(); });
  }
}

TEST(CallArguments, EveryState) {
  std::vector<float> memory(3 * 5 * 3);
  const auto states = SequenceView<float>::batch_first(memory.data(), 5, 3);
  Call call;
  const auto forward = [&](const SequenceView<float>& to) {
    call.network.forward(call.batch, call.x, call.y, nullptr, nullptr, nullptr, call.execution, to);
  };
  expect_refused("every state of a GRU", {"every_state", "gru"}, [&] { forward(states); });
  call.network = Recurrent<float>({.cell = "lstm", .input_size = 2, .hidden_size = 3});
  forward(states);
  expect_refused("states without strides", {"states", "strides"}, [&] { forward({memory.data(), 0, 0}); });
  expect_refused("states that overlap", {"states", "step stride", "3", "2"}, [&] { forward({memory.data(), 15, 2}); });
  expect_refused("states in y", {"states", "overlap", "y"}, [&] { forward(call.y); });
}

TEST(CallArguments, AreRefusedBackwards) {
  std::vector<Mistake> mistakes = batch_mistakes();
  mistakes.push_back({"no dy", {"dy"}, [](Call& c) { c.dy = {}; }});
  mistakes.push_back({"an unused tape", {"tape"}, [](Call& c) { c.tape = {}; }});
  mistakes.push_back({"a tape of fewer rows", {"tape"}, [](Call& c) { c.batch.rows = 4; }});
  mistakes.push_back({"a tape of fewer steps", {"tape"}, [](Call& c) { c.batch.steps = 6; }});
  for (const Mistake& mistake : mistakes) {
    Call call;
    call.forward();
    mistake.spoil(call);
    expect_refused(mistake.what, mistake.words, [&] { call.backward(); });
  }
}

TEST(CallArguments, AreSoundBeforeTheyAreSpoilt) {
  Call call;
  call.forward();
  call.backward();
  call.batch.lengths = call.lengths.data();
  call.forward();
  call.backward();
  call.batch.lengths = nullptr;
  call.batch.cu_seqlens = call.cu_seqlens.data();
  call.forward();
  call.backward();
}

TEST(CallArguments, TF32NeedsAGpu) {
  Call call;
  call.execution.precision = Precision::tf32;
  expect_error(ErrorCode::unsupported, "precision tf32 needs a GPU; CPUs support full, bf16-weights and bf16",
               [&] { call.forward(); });
}

TEST(CallArguments, ScanIsNotExact) {
  Call call({.cell = "mingru", .input_size = 2, .hidden_size = 3});
  call.forward();
  call.execution = {.algorithm = Algorithm::scan, .exact = true};
  expect_refused("scan in exact mode", {"algorithm", "scan", "exact"}, [&] { call.forward(); });
}

TEST(CallArguments, OfAStep) {
  std::vector<float> x(6), y(9), state(9);
  Call call;
  call.network.step(3, x.data(), y.data(), state.data());
  expect_refused("rows 0", {"rows", "0"}, [&] { call.network.step(0, x.data(), y.data(), state.data()); });
  expect_refused("no x", {"x"}, [&] { call.network.step(3, nullptr, y.data(), state.data()); });
  expect_refused("no y", {"y"}, [&] { call.network.step(3, x.data(), nullptr, state.data()); });
  expect_refused("no state", {"state"}, [&] { call.network.step(3, x.data(), y.data(), nullptr); });
  for (const Index rows : {1, 3}) {
    std::vector<float> wide(static_cast<std::size_t>(15 * rows));
    const Index last = 3 * rows - 1;  // of y
    expect_refused("y ends in x", {"y", "overlap", "x"},
                   [&] { call.network.step(rows, wide.data() + last, wide.data(), state.data()); });
    expect_refused("y is the state", {"y", "overlap", "state"},
                   [&] { call.network.step(rows, x.data(), wide.data(), wide.data()); });
    call.network.step(rows, wide.data() + last + 1, wide.data(), state.data());
  }
  for (const Direction direction : {Direction::reverse, Direction::bidirectional}) {
    Call other({.cell = "gru", .input_size = 2, .hidden_size = 3, .direction = direction});
    expect_refused("a step backwards in time", {"direction", std::string(to_string(direction))},
                   [&] { other.network.step(3, x.data(), y.data(), state.data()); });
  }
}

}  // namespace
}  // namespace penstock::test
