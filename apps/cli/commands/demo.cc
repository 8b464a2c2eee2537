#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "commands/commands.h"
#include "commands/demo_cell.h"
#include "options/options.h"
#include "penstock/recurrent.h"
#include "terminal/describe.h"
#include "terminal/terminal.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

struct DemoArguments : CellDemo {
  std::string what, model;
  double scale = 3.0, clip = 1.0;
};

/// Norms of the gradient by all weights.
struct Norm {
  Index steps = 0;
  double usual = 0.0, scaled = 0.0;  ///< With the recurrent matrix as it begins, and multiplied.
};

constexpr Index kInputs = 16;

void check(const DemoArguments& arguments) {
  const auto require_positive = [](const char* option, double value) {
    if (!(value > 0.0) || !std::isfinite(value)) {
      fail(ErrorCode::invalid_argument, "{} must be a positive number, not {}", option, value);
    }
  };
  require_positive("--scale", arguments.scale), require_positive("--clip", arguments.clip);
  constexpr Index most_steps = 100'000, largest = 4096;
  if (arguments.steps < 1 || arguments.steps > most_steps) {
    fail(ErrorCode::invalid_argument, "--length must be 1 to {}, not {}", most_steps, arguments.steps);
  }
  if (arguments.hidden < 1 || arguments.hidden > largest) {
    fail(ErrorCode::invalid_argument, "--width must be 1 to {}, not {}", largest, arguments.hidden);
  }
}

/// The recurrent matrix of a new network times `scale`.
Recurrent<double> network_of(const DemoArguments& arguments, double scale) {
  Recurrent<double> network({.cell = arguments.cell, .input_size = kInputs, .hidden_size = arguments.hidden},
                            arguments.seed);
  auto& all = network.parameters();
  const auto recurrent = std::ranges::find(all, "weight_hh_l0", &Recurrent<double>::Parameter::name);
  if (recurrent == all.end()) {
    fail(ErrorCode::invalid_argument,
         "--cell must have a recurrent matrix (elman, gru, lstm, slstm): {} has none, and its gradient passes through "
         "no products",
         arguments.cell);
  }
  for (double& weight : recurrent->value) weight *= scale;
  network.weights_changed();
  return network;
}

/// Returns the norm of the gradient of sum_j c_j h_T,j by all weights. The c_j are random, like the gradient of a loss
/// at the last step.
double gradient_norm(Recurrent<double>& network, const std::vector<double>& x, const std::vector<double>& c,
                     Index steps) {
  const Batch batch{.rows = 1, .steps = steps};
  const Index H = network.spec().hidden_size;
  std::vector<double> y(static_cast<std::size_t>(steps * H)), dy(y.size());
  std::copy(c.begin(), c.end(), dy.end() - H);
  const auto inputs = SequenceView<const double>::batch_first(x.data(), steps, kInputs);
  RecurrentTape<double> tape;
  network.zero_gradients();
  network.forward(batch, inputs, SequenceView<double>::batch_first(y.data(), steps, H), nullptr, nullptr, &tape);
  network.backward(batch, inputs, SequenceView<const double>::batch_first(dy.data(), steps, H), nullptr, {}, nullptr,
                   tape);
  double squares = 0.0;
  for (const auto& parameter : network.parameters()) {
    for (const double gradient : parameter.gradient) squares += gradient * gradient;
  }
  return std::sqrt(squares);
}

std::vector<Norm> measure(const DemoArguments& arguments) {
  Recurrent<double> usual = network_of(arguments, 1.0), scaled = network_of(arguments, arguments.scale);
  const std::vector<double> x = random_numbers(arguments.steps * kInputs, arguments.seed + 1);
  std::vector<double> c = random_numbers(arguments.hidden, arguments.seed + 2);
  for (double& factor : c) factor /= std::sqrt(static_cast<double>(arguments.hidden));
  std::vector<Norm> norms;
  for (const Index part : {8, 4, 2, 1}) {
    const Index steps = std::max<Index>(1, arguments.steps / part);
    if (!norms.empty() && norms.back().steps == steps) continue;
    norms.push_back({steps, gradient_norm(usual, x, c, steps), gradient_norm(scaled, x, c, steps)});
  }
  return norms;
}

/// Returns the norm that an optimiser gets. A gradient that is not finite stays so: the step is left out.
double clipped(double norm, double limit) { return std::min(norm, limit); }

std::string norm_text(double norm) { return std::isfinite(norm) ? fmt::format("{:.3g}", norm) : "not finite"; }

std::string clipped_text(double norm, double limit) {
  return std::isfinite(norm) ? norm_text(clipped(norm, limit)) : "step left out";
}

std::string text_of(const DemoArguments& arguments, const std::vector<Norm>& norms) {
  std::string text = fmt::format(
      "{} of {} units: norm of the gradient of all weights, for a loss at the last step\n"
      "\n",
      arguments.cell, arguments.hidden);
  const std::string times = fmt::format("W_hh x {:g}", arguments.scale);
  const std::string limit = fmt::format("clipped to {:g}", arguments.clip);
  text += fmt::format("  {:>7}  {:>12}  {:>14}  {:>14}  {:>14}\n", "steps", "W_hh", limit, times, limit);
  for (const Norm& norm : norms) {
    text += fmt::format("  {:>7}  {:>12}  {:>14}  {:>14}  {:>14}\n", norm.steps, norm_text(norm.usual),
                        clipped_text(norm.usual, arguments.clip), norm_text(norm.scaled),
                        clipped_text(norm.scaled, arguments.clip));
  }
  return text +
         "\n"
         "Through T steps, a gradient is multiplied by the recurrent matrix T times. With initial weights it shrinks;\n"
         "with a larger matrix it grows at every step, and one update with it ruins the model. Clipping keeps its\n"
         "direction and limits its norm: 'penstock train --clip', in PyTorch\n"
         "'penstock.torch.StableTrainer(model, clip=1.0)'.\n";
}

Json json_of(const DemoArguments& arguments, const std::vector<Norm>& norms) {
  Json all = Json::array();
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  const auto both = [&](double norm) {
    const double after = std::isfinite(norm) ? clipped(norm, arguments.clip) : norm;
    return Json{{"before", number(norm)}, {"after", number(after)}};
  };
  for (const Norm& norm : norms) {
    all.push_back({{"steps", norm.steps}, {"usual", both(norm.usual)}, {"scaled", both(norm.scaled)}});
  }
  return {{"cell", arguments.cell},
          {"hidden_size", arguments.hidden},
          {"scale", arguments.scale},
          {"clip", arguments.clip},
          {"norms", all}};
}

int show_cell(const DemoArguments& arguments) {
  if (!arguments.what.empty()) {
    fail(ErrorCode::invalid_argument, "--model shows a cell and '{}' shows gradients: give one of them",
         printable(arguments.what));
  }
  const std::vector<std::string>& cells = demo_cells();
  if (std::ranges::find(cells, arguments.model) == cells.end()) fail_choice("--model", arguments.model, cells);
  check(arguments);
  CellDemo demo = static_cast<const CellDemo&>(arguments);
  demo.cell = arguments.model;
  return print_answer(run_cell_demo(demo));
}

/// Without a word of what to show, options of gradients ask for those; the cell of minimal size is the best start.
void choose_demo(const CLI::App& app, DemoArguments& arguments) {
  if (!arguments.model.empty() || !arguments.what.empty()) return;
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  const bool of_gradients = given("--cell") || given("--scale") || given("--clip");
  (of_gradients ? arguments.what : arguments.model) = of_gradients ? "clip" : "mingru";
}

int run_demo(const CLI::App& app, DemoArguments arguments) {
  choose_demo(app, arguments);
  if (!arguments.model.empty()) {
    refuse_given(app, {"--cell", "--scale", "--clip"},
                 "is for 'penstock demo clip', not for --model " + arguments.model);
    return show_cell(arguments);
  }
  if (std::ranges::find(demo_cells(), arguments.what) != demo_cells().end()) {
    fail(ErrorCode::invalid_argument, "'{}' is a cell: 'penstock demo --model {}' shows it", arguments.what,
         arguments.what);
  }
  if (arguments.what != "clip") fail_choice("WHAT", arguments.what, {"clip"});
  const char* const why = "is for --model: 'clip' computes in double precision on one thread of the CPU";
  if (arguments.execution.device.is_cuda()) refuse_given(app, {"--device"}, why);
  refuse_given(app, {"--precision", "--threads"}, why);
  check(arguments);
  const std::vector<Norm> norms = measure(arguments);
  return print_answer(arguments.json ? json_line(json_of(arguments, norms)) : text_of(arguments, norms));
}

}  // namespace

Command add_demo(CLI::App& program) {
  CLI::App* app = program.add_subcommand("demo", "Show a cell at work, or exploding gradients and clipping");
  auto arguments = std::make_shared<DemoArguments>();
  Options options(*app);
  options.positional("[WHAT]", arguments->what,
                     "clip: print the norms of gradients before and after clipping; not with --model [--model mingru]");
  options.group("Network");
  options.add("--model", arguments->model, "NAME",
              "Show a cell: its equations, a step, a sequence, times and a picture: gru, lstm, mingru, minlstm");
  options.add("--cell", arguments->cell, "NAME", "With clip: a cell with a recurrent matrix: elman, gru, lstm, slstm");
  options.add("--width", arguments->hidden, "N", "Hidden size");
  options.add("--length", arguments->steps, "N", "Time steps of the longest sequence");
  options.add("--scale", arguments->scale, "X", "With clip: factor on the recurrent matrix");
  options.add("--clip", arguments->clip, "X", "With clip: largest norm of the gradient of all weights");
  options.add("--seed", arguments->seed, "N", "Seed of weights and inputs");
  options.group("Options");
  options.add("--threads", arguments->execution.threads, "N", "With --model: CPU threads; 0: all");
  options.device(arguments->execution);
  options.flag("--json", arguments->json, "Print one JSON object");
  options.finish(
      "  penstock demo\n"
      "  penstock demo --model gru\n"
      "  penstock demo clip\n"
      "  penstock demo clip --cell lstm --scale 5 --length 1000\n"
      "  penstock demo clip --json | jq .norms");
  return {app, [app, arguments] { return run_demo(*app, *arguments); }};
}

}  // namespace penstock::cli
