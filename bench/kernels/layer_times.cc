// Times of minGRU and minLSTM layers on a GPU, each checked in the same run:
//   cuda_layer_times [CELL,STORAGE,B,T,I,H[,REGIME] ...]
//                                         STORAGE: f32, bf16, f16, or tf32 (f32, with products in tf32)
//   cuda_layer_times --products CASE...   the three products of a layer in each algorithm that cuBLASLt proposes,
//                                         and of floats in kernels of our own, by other plans than the chosen one too
//   cuda_layer_times --fused CASE...      a layer in one launch, forward, in other shapes of blocks than the planned
//   cuda_layer_times --algorithms [CASE...]  every algorithm, forward; without cases over lengths: what the planner's
//   estimates rest on
// A wrong result prints no time, and the program exits with status 1.

#include <fmt/format.h>
#include <fmt/printf.h>

#include <cmath>
#include <cstdio>

#include "backend/cuda/driver/graph.h"
#include "backend/cuda/scan/layer.h"
#include "bench/kernels/measure.h"
#include "penstock/error.h"

namespace {

using namespace penstock;               // NOLINT(google-build-using-namespace)
using namespace penstock::bench::cuda;  // NOLINT(google-build-using-namespace)

struct Case {
  LayerSpec spec;
  Index rows = 1, steps = 1;

  Index positions() const { return rows * steps; }
  Index width() const { return scan_rule(spec.cell).gates * spec.hidden; }
};

Case parse(const std::string& text) {
  char cell[16] = {}, storage[8] = {}, algorithm[16] = "auto";
  long long rows = 0, steps = 0, input = 0, hidden = 0;
  if (std::sscanf(text.c_str(), "%15[^,],%7[^,],%lld,%lld,%lld,%lld,%15s", cell, storage, &rows, &steps, &input,
                  &hidden, algorithm) < 6) {
    throw Error(ErrorCode::invalid_argument, "CASE must be CELL,STORAGE,B,T,I,H[,REGIME], not '" + text + "'");
  }
  Case c{.spec = {.cell = cell, .input = input, .hidden = hidden}, .rows = rows, .steps = steps};
  c.spec.tf32 = storage == std::string("tf32");
  c.spec.algorithm = plan::parse_scan_algorithm(algorithm);
  if (c.spec.tf32) c.spec.storage = Storage::f32;
  for (const Storage s : {Storage::f32, Storage::bf16, Storage::f16}) {
    if (storage == std::string(to_string(s))) c.spec.storage = s;
  }
  return c;
}

struct Run {
  const Case& c;
  Stream& stream;
  Storage storage;
  Pattern x_values, w_values, b_values, dy_values;
  Buffer x, weight, bias, gates, y, dy, dx, dweight, dbias;

  Run(const Case& which, Stream& on)
      : c(which),
        stream(on),
        storage(c.spec.storage),
        x_values(random_pattern(1, -1, 1, storage)),
        w_values(random_pattern(2, -1 / std::sqrt(static_cast<double>(c.spec.input)),
                                1 / std::sqrt(static_cast<double>(c.spec.input)), storage)),
        b_values(random_pattern(3, -1, 1, storage)),
        dy_values(random_pattern(4, -1, 1, storage)) {
    x = tensor(on, c.positions() * c.spec.input, x_values, storage);
    weight = tensor(on, c.width() * c.spec.input, w_values, storage);
    bias = tensor(on, c.width(), b_values, storage);
    dy = tensor(on, c.positions() * c.spec.hidden, dy_values, storage);
    const auto room = [&](Index count, Storage of) {
      Buffer buffer(on, static_cast<std::size_t>(count * size_of(of)));
      buffer.fill(0xff);
      return buffer;
    };
    gates = room(c.positions() * c.width(), storage);
    y = room(c.positions() * c.spec.hidden, storage);
    dx = room(c.positions() * c.spec.input, storage);
    dweight = room(c.width() * c.spec.input, c.spec.gradients);
    dbias = room(c.width(), c.spec.gradients);
  }

  DeviceSequence sequence(const Buffer& buffer, Index channels) const {
    return {buffer.address(), c.steps * channels, channels};
  }
  LayerBatch batch() const { return {.rows = c.rows, .steps = c.steps}; }
  /// `keep`: a backward pass follows.
  LayerForward forward(bool keep = true) const {
    LayerForward call;
    call.batch = batch();
    call.x = sequence(x, c.spec.input);
    call.y = sequence(y, c.spec.hidden);
    call.weights = {weight.address(), bias.address()};
    call.gates = gates.address();
    call.keep_gates = keep;
    return call;
  }
  LayerBackward backward() const {
    LayerBackward call;
    call.batch = batch();
    call.x = sequence(x, c.spec.input);
    call.y = sequence(y, c.spec.hidden);
    call.dy = sequence(dy, c.spec.hidden);
    call.dx = sequence(dx, c.spec.input);
    call.weights = {weight.address(), 0};
    call.gradients = {dweight.address(), dbias.address()};
    call.gates = call.dgates = gates.address();
    return call;
  }

  double gate_value(Index position, Index unit) const {
    double sum = b_values.at(unit);
    for (Index i = 0; i < c.spec.input; ++i) {
      sum += x_values.at(position * c.spec.input + i) * w_values.at(unit * c.spec.input + i);
    }
    return sum;
  }

  /// Greatest error of y at one unit, relative to the greatest value there.
  double forward_error(Index unit) const {
    double worst = 0, scale = 1e-30;
    for (Index row = 0; row < c.rows; ++row) {
      const std::vector<double> got = column(y, row, c.spec.hidden, unit);
      double h = 0;
      for (Index t = 0; t < c.steps; ++t) {
        h = textbook_step(c.spec.cell, gates_of(row * c.steps + t, unit), h).h;
        scale = std::max(scale, std::abs(h));
        worst = std::max(worst, off(got[static_cast<std::size_t>(t)], h));
      }
    }
    return worst / scale;
  }

  std::vector<double> gates_of(Index position, Index unit) const {
    std::vector<double> gate;
    for (Index g = 0; g < c.width() / c.spec.hidden; ++g) {
      gate.push_back(gate_value(position, g * c.spec.hidden + unit));
    }
    return gate;
  }

  /// Greatest error of y, of the weights' and the bias' gradients at one unit, and of dx at one position, each relative
  /// to the greatest value there. `gates` holds their gradients.
  double error(Index unit) const {
    const Index G = c.width() / c.spec.hidden;
    std::vector<std::vector<double>> dw(static_cast<std::size_t>(G), std::vector<double>(c.spec.input, 0.0));
    std::vector<double> db(static_cast<std::size_t>(G), 0.0);
    double worst_y = 0, scale_y = 0;
    for (Index row = 0; row < c.rows; ++row) {
      std::vector<Step> steps;
      double h = 0;
      for (Index t = 0; t < c.steps; ++t) {
        steps.push_back(textbook_step(c.spec.cell, gates_of(row * c.steps + t, unit), h));
        h = steps.back().h;
        scale_y = std::max(scale_y, std::abs(h));
      }
      const std::vector<double> got = column(y, row, c.spec.hidden, unit);
      for (Index t = 0; t < c.steps; ++t) worst_y = std::max(worst_y, off(got[t], steps[t].h));
      double dh = 0;
      for (Index t = c.steps - 1; t >= 0; --t) {
        const Index position = row * c.steps + t;
        dh += dy_values.at(position * c.spec.hidden + unit);
        for (std::size_t g = 0; g < db.size(); ++g) {
          const double gradient = dh * steps[t].by_gates[g];
          db[g] += gradient;
          for (Index i = 0; i < c.spec.input; ++i) dw[g][i] += gradient * x_values.at(position * c.spec.input + i);
        }
        dh *= steps[t].keep;
      }
    }
    double worst = worst_y / scale_y;
    for (std::size_t g = 0; g < db.size(); ++g) {
      const Index row = static_cast<Index>(g) * c.spec.hidden + unit;
      dw[g].push_back(db[g]);
      std::vector<double> got = elements(dweight, row * c.spec.input, c.spec.input, c.spec.gradients, stream);
      got.push_back(elements(dbias, row, 1, c.spec.gradients, stream)[0]);
      worst = std::max(worst, relative(got, dw[g]));
    }
    return std::max(worst, dx_error(c.positions() / 2));
  }

  /// dx at one position against the product of the gates' gradients that the GPU has there.
  double dx_error(Index position) const {
    const std::vector<double> dgates = elements(gates, position * c.width(), c.width(), storage, stream);
    std::vector<double> want(static_cast<std::size_t>(c.spec.input), 0.0);
    for (Index unit = 0; unit < c.width(); ++unit) {
      for (Index i = 0; i < c.spec.input; ++i) want[i] += dgates[unit] * w_values.at(unit * c.spec.input + i);
    }
    return relative(elements(dx, position * c.spec.input, c.spec.input, storage, stream), want);
  }

  static double off(double got, double want) {
    const double difference = std::abs(got - want);
    return std::isnan(difference) ? 1e30 : difference;
  }
  static double relative(const std::vector<double>& got, const std::vector<double>& want) {
    double worst = 0, scale = 1e-30;
    for (std::size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, off(got[i], want[i]));
      scale = std::max(scale, std::abs(want[i]));
    }
    return worst / scale;
  }
  std::vector<double> column(const Buffer& buffer, Index row, Index channels, Index unit) const {
    const std::vector<double> all = elements(buffer, row * c.steps * channels, c.steps * channels, storage, stream);
    std::vector<double> values;
    for (Index t = 0; t < c.steps; ++t) values.push_back(all[static_cast<std::size_t>(t * channels + unit)]);
    return values;
  }
};

/// Rounding of x W^T, of the gates and of y, and of their gradients in the backward pass.
double bound(Storage storage) { return storage == Storage::f32 ? 1e-4 : storage == Storage::bf16 ? 0x1p-5 : 0x1p-8; }

bool measure(const std::string& text, Stream& stream, Clock& clock) {
  const Case c = parse(text);
  Run run(c, stream);
  cuda::Device& device = stream.device();
  const LayerForwardExecutable forward(device, c.spec, run.forward());
  const LayerForwardExecutable inference(device, c.spec, run.forward(false));
  const LayerBackwardExecutable backward(device, c.spec, run.backward());
  // One for each: what one leaves in its workspace is nothing that another can begin with.
  const auto workspace_of = [&](const auto& executable) {
    Buffer buffer(stream, executable.workspace_bytes());
    buffer.fill(0);
    return buffer;
  };
  const Buffer of_forward = workspace_of(forward), of_inference = workspace_of(inference),
               of_backward = workspace_of(backward);
  const auto forwards = [&] { inference.run(run.forward(false), of_inference.address(), stream.handle()); };
  const auto both = [&] {
    forward.run(run.forward(), of_forward.address(), stream.handle());
    backward.run(run.backward(), of_backward.address(), stream.handle());
  };
  const double forward_ms = clock.median(forwards);
  const auto second_half = [&] { inference.run_scan(run.forward(), of_inference.address(), stream.handle()); };
  const plan::ScanAlgorithm algorithm = inference.plan().algorithm;
  const bool fused = algorithm == plan::ScanAlgorithm::fused || algorithm == plan::ScanAlgorithm::epilogue;
  const double scan_ms = fused ? 0 : clock.median(second_half);
  const double both_ms = clock.median(both);
  const double host_us = clock.host(forwards) * 1e3;
  const double host_scan_us = fused ? 0 : clock.host(second_half) * 1e3;
  const Graph graph(stream, forwards), graph_of_both(stream, both);
  const double graph_us = clock.host([&] { graph.launch(stream.handle()); }) * 1e3;
  const double graph_of_both_ms = clock.median([&] { graph_of_both.launch(stream.handle()); });
  graph_of_both.launch(stream.handle());
  const double error = run.error(c.spec.hidden / 3);
  if (!(error < bound(c.spec.tf32 ? Storage::f16 : c.spec.storage))) {
    fmt::print("| {} | wrong by {} |\n", text, error);
    return false;
  }
  fmt::print("| {} | {:.4f} | {:.4f} | {:.4f} | {:.4f} | {:.1f} | {:.1f} | {:.1f} | {:.1e} |\n", text, forward_ms,
             scan_ms, both_ms, graph_of_both_ms, host_us, host_scan_us, graph_us, error);
  std::fflush(stdout);
  return true;
}

/// Times all plans of a case. Returns whether all results were right.
bool sweep_fused(const Case& c, Stream& stream, Clock& clock) {
  constexpr std::size_t most = 24;
  Run run(c, stream);
  const plan::GpuModel& gpu = stream.device().model();
  std::vector<plan::GpuScanPlan> plans = fused_plans(problem_of(run.forward(false), c.spec), gpu);
  if (plans.size() > most) plans.resize(most);
  bool right = true;
  for (const plan::GpuScanPlan& plan : plans) {
    run.y.fill(0xff);
    const LayerForwardExecutable forward(stream.device(), c.spec, run.forward(false), plan);
    const double ms = clock.median([&] { forward.run(run.forward(false), 0, stream.handle()); });
    const bool sound = run.forward_error(c.spec.hidden / 3) < bound(c.spec.storage);
    right &= sound;
    fmt::print("{} ({} values a thread): {}\n", sound ? fmt::format("{:.4f} ms", ms) : "wrong", plan.vector,
               plan.explain());
    std::fflush(stdout);
  }
  return right;
}

/// Times of a product with the algorithms of the first ranks, and which of its parts it has.
void time_product(const char* what, ProductShape shape, Stream& stream, Clock& clock) {
  constexpr int ranks = 6;
  constexpr std::size_t most = 24;
  const auto room = [&](Index rows, Index stride, Storage storage) {
    Buffer buffer(stream, static_cast<std::size_t>(rows * stride * size_of(storage)));
    buffer.fill(0);
    return buffer;
  };
  const Buffer a = room(shape.a_transposed ? shape.k : shape.m, shape.a_stride, shape.storage);
  const Buffer b = room(shape.b_transposed ? shape.n : shape.k, shape.b_stride, shape.storage);
  const Buffer d = room(shape.m, shape.d_stride, shape.result), vector = room(shape.m + shape.n, 1, Storage::f32);
  std::string times;
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      const Product product(stream.device(), shape, rank);
      const Buffer workspace(stream, product.workspace_bytes());
      const double ms = clock.median([&] {
        product.run(a.address(), b.address(), d.address(), vector.address(), workspace.address(), stream.handle());
      });
      times += fmt::format(" {:.4f} ({} KB)", ms, product.workspace_bytes() >> 10);
    } catch (const Error& error) {
      times += fmt::format(" [{}]", error.what());
      break;
    }
  }
  fmt::print("{} {} x {} x {}:{}\n", what, shape.m, shape.n, shape.k, times);
  if (in_own_kernels(stream.device().model(), shape)) {
    std::vector<plan::GpuProductPlan> plans = product_plans(problem_of(shape), stream.device().model());
    if (plans.size() > most) plans.resize(most);
    for (const plan::GpuProductPlan& plan : plans) {
      const FloatProduct product(stream.device(), shape, plan);
      const Buffer workspace(stream, product.workspace_bytes());
      const double ms = clock.median([&] {
        product.run(a.address(), b.address(), d.address(), vector.address(), workspace.address(), stream.handle());
      });
      fmt::print("  {:.4f} ms: {}\n", ms, plan.explain());
    }
  }
  std::fflush(stdout);
}

void time_products(const Case& c, Stream& stream, Clock& clock) {
  const Index P = c.positions(), W = c.width(), I = c.spec.input;
  ProductShape shape{.storage = c.spec.storage, .result = c.spec.storage, .tf32 = c.spec.tf32};
  shape.a_alignment = shape.b_alignment = shape.d_alignment = 256;
  shape.m = P, shape.n = W, shape.k = I, shape.b_transposed = true;
  shape.a_stride = shape.b_stride = I, shape.d_stride = W;
  shape.epilogue = Epilogue::add_bias;
  time_product("forward", shape, stream, clock);
  shape.epilogue = Epilogue::nothing, shape.b_transposed = false;
  shape.n = I, shape.k = W, shape.a_stride = W, shape.d_stride = I;
  time_product("gradient of x", shape, stream, clock);
  shape.m = W, shape.k = P, shape.a_transposed = true, shape.result = c.spec.gradients;
  time_product("gradient of weight alone", shape, stream, clock);
  shape.epilogue = Epilogue::sum_columns;
  time_product("gradient of weight, sums of columns", shape, stream, clock);
}

constexpr const char* kForms[] = {"mingru,f32,1,%d,64,128",   "minlstm,f32,1,%d,64,128",   "mingru,f32,1,%d,256,256",
                                  "mingru,f32,64,%d,100,100", "mingru,bf16,64,%d,256,256", "mingru,f32,8,%d,256,256"};
constexpr int kLengths[] = {1, 8, 16, 32, 64, 128, 256, 1024, 4096, 16384};

/// Forward times of all algorithms side by side, and which one the planner would have chosen.
bool compare_algorithms_of(const std::string& text, Stream& stream, Clock& clock) {
  std::string times, errors;
  bool right = true;
  for (const char* algorithm : {"direct", "fused", "scan", "auto"}) {
    const Case c = parse(text + "," + algorithm);
    Run run(c, stream);
    const LayerForwardExecutable forward(stream.device(), c.spec, run.forward(false));
    if (algorithm == std::string("auto")) {
      times += fmt::format(" {} |", to_string(forward.plan().algorithm));
      continue;
    }
    Buffer workspace(stream, forward.workspace_bytes());
    workspace.fill(0);
    const double ms = clock.median([&] { forward.run(run.forward(false), workspace.address(), stream.handle()); });
    const double error = run.forward_error(c.spec.hidden / 3);
    const bool sound = error < bound(c.spec.storage);
    right &= sound;
    times += sound ? fmt::format(" {:.4f} |", ms) : " wrong |";
    errors += fmt::format(" {:.1e}", error);
  }
  fmt::print("| {} |{}{} |\n", text, times, errors);
  std::fflush(stdout);
  return right;
}

/// The cases, or if there are none, those on which the planner's estimates rest.
bool compare_algorithms(std::vector<std::string> cases, Stream& stream, Clock& clock) {
  for (const char* form : cases.empty() ? std::span<const char* const>(kForms) : std::span<const char* const>()) {
    for (const int length : kLengths) {
      const std::string text = fmt::sprintf(form, length);
      if (parse(text).rows * length <= (1 << 19)) cases.push_back(text);
    }
  }
  fmt::print("| case | direct ms | fused ms | scan ms | chosen | error of each |\n|---|---|---|---|---|---|\n");
  return measure_each(cases, [&](const std::string& text) { return compare_algorithms_of(text, stream, clock); });
}

constexpr const char* kCases[] = {
    "mingru,bf16,8,4096,1024,1024",  "mingru,bf16,8,1024,1024,1024", "mingru,bf16,64,512,256,256",
    "mingru,f32,64,1000,100,100",    "mingru,tf32,64,1000,100,100",  "minlstm,bf16,8,4096,1024,1024",
    "minlstm,bf16,8,1024,1024,1024", "minlstm,bf16,64,512,256,256",  "minlstm,f32,64,1000,100,100",
    "minlstm,tf32,64,1000,100,100",  "mingru,f32,1,256,256,256",     "mingru,f32,1,4096,256,256",
    "mingru,f32,1,65536,256,256",    "minlstm,f32,1,4096,256,256",   "minlstm,f32,1,65536,256,256",
    "mingru,f32,8,4096,256,256",     "mingru,f32,8,65536,256,256"};

/// --fused, --products and --algorithms; whether all was right.
bool measure_parts(const std::vector<std::string>& arguments, Stream& stream, Clock& clock) {
  if (arguments.front() == "--algorithms") {
    return compare_algorithms({arguments.begin() + 1, arguments.end()}, stream, clock);
  }
  bool right = true;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    fmt::print("{}\n", arguments[i]);
    if (arguments.front() == "--fused") {
      right &= sweep_fused(parse(arguments[i]), stream, clock);
    } else {
      time_products(parse(arguments[i]), stream, clock);
    }
  }
  return right;
}

int run(const std::vector<std::string>& cases) {
  cuda::Device& device = cuda::Device::get(0);
  Stream stream(device);
  Clock clock(stream);
  for (const char* option : {"--fused", "--products", "--algorithms"}) {
    if (cases.front() == option) return measure_parts(cases, stream, clock) ? 0 : 1;
  }
  fmt::print(
      "{}\n\n| cell, storage, B, T, I, H | forward ms | of it the recurrence | forward + backward ms | as a graph | "
      "host us of a forward call | of it the recurrence | as a graph | error |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      device.model().name);
  return measure_each(cases, [&](const std::string& text) { return measure(text, stream, clock); }) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return run_program("cuda_layer_times", argc, argv, kCases, run); }
