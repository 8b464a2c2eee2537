// Times of the recurrence of dense cells on a GPU, W x given, each checked in the same run against the oracle:
//   cuda_dense_times
//   [CELL,STORAGE,B,T,HEADS,D[,ROWS_OF_A_BLOCK|ragged|head|cluster|chip[-SHAPE]|warpgroup[-SHAPE]|step|
//                    diagonal[-PIECES]] ...]
//                       STORAGE tf32: f32 whose products may round their factors
//                       CELL own-peephole, own-norm-lstm, own-norm-peephole: as a program defines it, checked by
//                       tests and not here
//                       ragged: lengths uniform in 1..T; a name: by that algorithm
//                       SHAPE: CLUSTER-ROWS-GROUPS-PARTS-DIRECT-LEFT_OUT of plan::GpuDensePlan, each 0 (DIRECT: -1):
//                       the planner chooses; a pass that cannot have this shape is not timed. Warpgroups have SHARES
//                       for DIRECT
// Median and, in parentheses, the middle half of the times. Errors are relative to the greatest value: of y and dwx of
// one row over the first steps.

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "backend/cuda/dense/executable.h"
#include "bench/kernels/measure.h"
#include "oracle/network.h"
#include "oracle/written_cells.h"
#include "penstock/error.h"

namespace {

using namespace penstock;               // NOLINT(google-build-using-namespace)
using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)
using penstock::cuda::Buffer, penstock::cuda::Stream;

struct Case {
  DenseSpec spec;
  Index rows = 1, steps = 1;
  int slots = 0, cluster = 0, groups = 0, parts = 0, direct = -1, left_out = 0;
  bool ragged = false;

  Index positions() const { return rows * steps; }
  bool is_own() const { return plan::cell_traits(spec.cell).custom != nullptr; }
  Index gates() const { return plan::cell_traits(spec.cell).gates(); }
  Index vectors() const { return plan::cell_traits(spec.cell).bias_vectors() * spec.hidden; }
  Index states() const { return plan::cell_traits(spec.cell).states(); }
  Index width() const { return gates() * spec.hidden; }
};

Case parse(const std::string& text) {
  char cell[24] = {}, storage[8] = {}, more[32] = {};
  long long rows = 0, steps = 0, heads = 0, head = 0;
  if (std::sscanf(text.c_str(), "%23[^,],%7[^,],%lld,%lld,%lld,%lld,%31s", cell, storage, &rows, &steps, &heads, &head,
                  more) < 6) {
    throw Error(ErrorCode::invalid_argument,
                "CASE must be CELL,STORAGE,B,T,HEADS,D[,ROWS_OF_A_BLOCK|ragged|ALGORITHM], not '" + text + "'");
  }
  for (const auto& own : {test::written_peephole("own-peephole"), test::written_norm_lstm("own-norm-lstm"),
                          test::written_norm_peephole("own-norm-peephole")}) {
    if (own.definition.name == cell) define_cell(own.definition, own.equations);
  }
  Case c{.spec = {.cell = cell, .hidden = heads * head, .heads = heads}, .rows = rows, .steps = steps};
  for (const Storage s : {Storage::f32, Storage::bf16, Storage::f16}) {
    if (storage == std::string(to_string(s))) c.spec.storage = s;
  }
  if (storage == std::string("tf32")) c.spec.storage = Storage::f32, c.spec.tf32 = true;
  c.ragged = more == std::string("ragged");
  c.slots = std::atoi(more);
  for (const auto algorithm : plan::dense_algorithms()) {
    const std::string_view name = to_string(algorithm);
    if (std::string_view(more).substr(0, name.size()) != name) continue;
    c.spec.algorithm = algorithm;
    if (algorithm == plan::DenseAlgorithm::diagonal) {
      std::sscanf(more + name.size(), "-%d", &c.parts);
      continue;
    }
    std::sscanf(more + name.size(), "-%d-%d-%d-%d-%d-%d", &c.cluster, &c.slots, &c.groups, &c.parts, &c.direct,
                &c.left_out);
  }
  return c;
}

struct Run {
  const Case& c;
  Stream& stream;
  Storage storage;
  Pattern x_values, r_values, dy_values;
  Buffer wx, weight, vectors, y, dy, sums, states, dwx, drh, dweight, dbias, workspace, lengths;
  std::vector<Index> lengths_of;

  Run(const Case& which, Stream& on)
      : c(which),
        stream(on),
        storage(c.spec.storage),
        x_values(random_pattern(1, -2, 2, storage)),
        r_values(random_pattern(2, -1 / std::sqrt(static_cast<double>(head())),
                                1 / std::sqrt(static_cast<double>(head())), storage)),
        dy_values(random_pattern(4, -1, 1, storage)) {
    wx = tensor(on, c.positions() * c.width(), x_values, storage);
    weight = tensor(on, c.width() * head(), r_values, storage);
    if (c.is_own()) vectors = tensor(on, c.vectors(), random_pattern(5, 0.5, 1, Storage::f32), Storage::f32);
    dy = tensor(on, c.positions() * c.spec.hidden, dy_values, storage);
    const auto room = [&](Index count, Storage of) {
      Buffer buffer(on, static_cast<std::size_t>(count * size_of(of)));
      buffer.fill(0xff);
      return buffer;
    };
    y = room(c.positions() * c.spec.hidden, storage);
    sums = room(c.positions() * c.width(), storage);
    const DenseTapeBytes of_tape = tape_bytes(c.spec, {.rows = c.rows, .steps = c.steps});
    states = room(static_cast<Index>(of_tape.states / sizeof(float)), Storage::f32);
    dwx = room(c.positions() * c.width(), storage);
    if (plan::cell_traits(c.spec.cell).split_gradients) drh = room(c.positions() * c.width(), storage);
    dweight = room(c.width() * head(), Storage::f32);
    dbias = room(c.vectors(), Storage::f32);
    Random random(3);
    for (Index b = 0; b < c.rows; ++b) {
      lengths_of.push_back(1 + static_cast<Index>(random.uniform() * static_cast<double>(c.steps - 1)));
    }
    lengths = Buffer(on, lengths_of.size() * sizeof(Index));
    lengths.upload(lengths_of.data(), lengths.bytes());
  }

  Index head() const { return c.spec.hidden / c.spec.heads; }
  DeviceSequence sequence(const Buffer& buffer, Index channels) const {
    return {buffer.address(), c.steps * channels, channels};
  }
  DenseForward forward(bool training) const {
    DenseForward call;
    call.batch = {.rows = c.rows, .steps = c.steps, .lengths = c.ragged ? lengths.address() : 0};
    call.wx = sequence(wx, c.width()), call.y = sequence(y, c.spec.hidden);
    call.weights.recurrent = weight.address(), call.weights.bias_ih = vectors.address();
    if (training) call.tape = {sums.address(), states.address()};
    return call;
  }
  DenseBackward backward() const {
    const DenseForward of = forward(true);
    DenseBackward call;
    call.batch = of.batch;
    call.wx = of.wx, call.y = of.y, call.dy = sequence(dy, c.spec.hidden);
    call.weights = of.weights;
    call.tape = of.tape;
    call.dwx = dwx.address(), call.drh = drh.address();
    call.gradients = {dweight.address(), dbias.address(), 0};
    return call;
  }

  /// The oracle's layer of one head: W x of it as the input, ones as weights of the input.
  oracle::Arguments<double> arguments(Index row, Index of_head, Index steps) const {
    oracle::Arguments<double> all;
    const Index D = head(), W = c.gates() * D;
    oracle::Weights<double> weights;
    weights.weight_ih.assign(static_cast<std::size_t>(W * W), 0.0);
    for (Index i = 0; i < W; ++i) weights.weight_ih[static_cast<std::size_t>(i * W + i)] = 1;
    for (Index i = 0; i < W * D; ++i) weights.weight_hh.push_back(r_values.at(of_head * W * D + i));
    all.weights = {weights};
    for (Index t = 0; t < steps; ++t) {
      for (Index i = 0; i < W; ++i) {
        all.x.push_back(x_values.at((row * c.steps + t) * c.width() + i / D * c.spec.hidden + of_head * D + i % D));
      }
    }
    return all;
  }
  RecurrentSpec oracle_spec() const {
    return {.cell = c.spec.cell, .input_size = c.gates() * head(), .hidden_size = head(), .bias = Bias::none};
  }

  static double error(const std::vector<double>& got, const std::vector<double>& want) {
    double worst = 0, scale = 1e-30;
    for (std::size_t i = 0; i < want.size(); ++i) {
      scale = std::max(scale, std::abs(want[i]));
      const double off = std::abs(got[i] - want[i]);
      worst = std::isnan(off) ? 1e30 : std::max(worst, off);
    }
    return worst / scale;
  }

  /// Returns the error of y over the first steps of the last row and head, of a cell that the oracle knows.
  double forward_error() const {
    if (c.is_own()) return -1;
    const Index row = c.rows - 1, of_head = c.spec.heads - 1, D = head();
    // The oracle multiplies each W x by ones on the diagonal: so many steps take half a second. Heads of a single unit
    // are compared over all steps, since pieces of the steps run side by side.
    const Index W = c.gates() * D, most = D == 1 ? c.steps : std::clamp<Index>(300'000'000 / (W * W), 8, 200);
    const Index steps = std::min<Index>(c.ragged ? lengths_of[static_cast<std::size_t>(row)] : c.steps, most);
    const Batch batch{.rows = 1, .steps = steps};
    const oracle::Results<double> want = oracle::forward(oracle_spec(), batch, arguments(row, of_head, steps));
    std::vector<double> got;
    for (Index t = 0; t < steps; ++t) {
      const std::vector<double> of_step =
          elements(y, (row * c.steps + t) * c.spec.hidden + of_head * D, D, storage, stream);
      got.insert(got.end(), of_step.begin(), of_step.end());
    }
    return error(got, want.y);
  }

  /// Returns the error of dwx over all steps of the last row and head, if the sequence is short enough for the oracle.
  double backward_error() const {
    const Index row = c.rows - 1, of_head = c.spec.heads - 1, D = head();
    if (c.steps > 64 || c.is_own()) return -1;
    const Index steps = c.ragged ? lengths_of[static_cast<std::size_t>(row)] : c.steps;
    std::vector<double> of_y;
    for (Index t = 0; t < steps; ++t) {
      for (Index j = 0; j < D; ++j) {
        of_y.push_back(dy_values.at((row * c.steps + t) * c.spec.hidden + of_head * D + j));
      }
    }
    const Batch batch{.rows = 1, .steps = steps};
    const oracle::Arguments<double> want =
        oracle::gradients(oracle_spec(), batch, arguments(row, of_head, steps), of_y, {});
    std::vector<double> got;
    for (Index t = 0; t < steps; ++t) {
      for (Index q = 0; q < c.gates(); ++q) {
        const std::vector<double> of_gate =
            elements(dwx, (row * c.steps + t) * c.width() + q * c.spec.hidden + of_head * D, D, storage, stream);
        got.insert(got.end(), of_gate.begin(), of_gate.end());
      }
    }
    return error(got, want.x);
  }
};

struct Times {
  double median, low, high;
};

Times times(Clock& clock, const std::function<void()>& work) {
  std::vector<double> all = clock.sample(0.02, work);
  std::sort(all.begin(), all.end());
  const std::size_t n = all.size();
  return {all[n / 2] * 1e3, all[n / 4] * 1e3, all[3 * n / 4] * 1e3};
}

std::string text_of(const Times& t) { return fmt::format("{:.4f} ({:.4f}-{:.4f})", t.median, t.low, t.high); }

bool measure(const std::string& text, Stream& stream, Clock& clock) {
  const Case c = parse(text);
  Run run(c, stream);
  cuda::Device& device = stream.device();
  bool forward_as_asked = true, backward_as_asked = true;
  const auto plan_of = [&](const auto& call, bool& as_asked) {
    plan::GpuDenseProblem problem = problem_of(call, c.spec);
    const plan::GpuDenseProblem free = problem;
    problem.slots = c.slots, problem.cluster = c.cluster;
    problem.groups = c.groups, problem.parts = c.parts;
    (problem.algorithm == plan::DenseAlgorithm::warpgroup ? problem.shares : problem.direct) = c.direct;
    try {
      plan::GpuDensePlan plan = plan_gpu_dense(problem, device.model());
      plan.left_out = c.left_out;
      return plan;
    } catch (const Error&) {
      as_asked = false;
      return plan_gpu_dense(free, device.model());
    }
  };
  const DenseForwardExecutable inference(device, c.spec, run.forward(false),
                                         plan_of(run.forward(false), forward_as_asked));
  const DenseForwardExecutable training(device, c.spec, run.forward(true),
                                        plan_of(run.forward(true), forward_as_asked));
  const DenseBackwardExecutable backward(device, c.spec, run.backward(), plan_of(run.backward(), backward_as_asked));
  run.workspace =
      Buffer(stream, std::max({inference.workspace_bytes(), training.workspace_bytes(), backward.workspace_bytes()}));
  run.workspace.fill(0);
  const DeviceAddress workspace = run.workspace.address();
  const auto infer = [&] { inference.run(run.forward(false), workspace, stream.handle()); };
  const auto train = [&] { training.run(run.forward(true), workspace, stream.handle()); };
  const auto loop = [&] { backward.run_loop(run.backward(), workspace, stream.handle()); };
  const auto both = [&] {
    train();
    backward.run(run.backward(), workspace, stream.handle());
  };
  const Times of_inference = times(clock, infer), of_training = times(clock, train), of_loop = times(clock, loop);
  const Times of_both = times(clock, both);
  const double forward_error = run.forward_error(), backward_error = run.backward_error();
  fmt::print(stderr, "{}\n{}\n{}\n", text, training.plan().explain(), backward.plan().explain());
  const auto if_asked = [](bool as_asked, const Times& t) { return as_asked ? text_of(t) : std::string("-"); };
  const auto error_text = [](double error) { return error < 0 ? "-" : fmt::format("{:.1e}", error); };
  fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} {} {} regs |\n", text, if_asked(forward_as_asked, of_inference),
             if_asked(forward_as_asked, of_training), if_asked(backward_as_asked, of_loop),
             if_asked(forward_as_asked && backward_as_asked, of_both), error_text(forward_error),
             error_text(backward_error), training.plan().slots, training.kernel().resources().registers,
             backward.kernel().resources().registers);
  std::fflush(stdout);
  const double bound = c.spec.tf32                       ? 0x1p-8
                       : c.spec.storage == Storage::f32  ? 1e-4
                       : c.spec.storage == Storage::bf16 ? 0x1p-5
                                                         : 0x1p-8;
  return forward_error < bound && backward_error < 2 * bound;
}

constexpr const char* kCases[] = {"lstm,bf16,16,1024,12,64", "lstm,bf16,16,1024,6,128", "slstm,bf16,16,1024,12,64",
                                  "slstm,bf16,16,1024,4,128"};

int run(const std::vector<std::string>& cases) {
  cuda::Device& device = cuda::Device::get(0);
  Stream stream(device);
  Clock clock(stream);
  fmt::print(
      "{}\n\n| cell, storage, B, T, heads, D | forward ms | forward that keeps a tape | backward, the steps | forward "
      "+ "
      "backward | error of y | of dwx | rows of a block, registers |\n|---|---|---|---|---|---|---|---|\n",
      device.model().name);
  return measure_each(cases, [&](const std::string& text) { return measure(text, stream, clock); }) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return run_program("cuda_dense_times", argc, argv, kCases, run); }
