#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "nn/layer/recurrent_graph.h"
#include "ops/program_check.h"
#include "ops/recurrence/recurrence.h"
#include "plan/cell_table.h"

namespace penstock::nn {

namespace {

void check_projected(const RecurrentSpec& spec, const CellInfo& cell) {
  require(!cell.scan, "projected_input must be off for cell {}, which has no recurrent matrix: use a scan", spec.cell);
  require_argument(spec.layers == 1, "layers", spec.layers, "1 with projected_input");
  require(spec.direction != Direction::bidirectional, "direction must be forward or reverse with projected_input");
  require_argument(spec.input_size == cell.gates * spec.hidden_size, "input_size", spec.input_size,
                   "the {} values of all gates with projected_input", cell.gates * spec.hidden_size);
}

}  // namespace

void check_spec(const RecurrentSpec& spec) {
  check_enum("direction", spec.direction, Direction::bidirectional);
  check_enum("bias", spec.bias, Bias::both);
  const CellInfo& cell = find_cell(spec.cell);
  require(spec.bias != Bias::none || plan::cell_traits(spec.cell).learnt == 0,
          "bias must be single or both for cell {}, whose learnt vectors stand behind bias_ih, not none", spec.cell);
  // Sizes are multiplied freely from here on; the limits keep every product within an Index.
  constexpr Index most = Index{1} << 20;
  require_argument(spec.input_size >= 1 && spec.input_size <= most, "input_size", spec.input_size, "1 to {}", most);
  require_argument(spec.hidden_size >= 1 && spec.hidden_size <= most, "hidden_size", spec.hidden_size, "1 to {}", most);
  require_argument(spec.layers >= 1 && spec.layers <= 1024, "layers", spec.layers, "1 to 1024");
  require_about(spec.heads >= 1 && spec.hidden_size % spec.heads == 0, "heads",
                " must divide hidden_size = {}, and {} does not", spec.hidden_size, spec.heads);
  require_argument(!cell.scan || spec.heads == 1, "heads", spec.heads, "1 for cell {}, which has no recurrent matrix",
                   spec.cell);
  require_argument(spec.dropout >= 0.0 && spec.dropout < 1.0, "dropout", spec.dropout, "at least 0 and below 1");
  require_argument(spec.gradient_clip >= 0.0 && std::isfinite(spec.gradient_clip), "gradient_clip", spec.gradient_clip,
                   "0 or a positive number");
  require_argument(!cell.scan || spec.gradient_clip == 0.0, "gradient_clip", spec.gradient_clip,
                   "0 for cell {}, whose gradients pass through no recurrent matrix", spec.cell);
  if (spec.projected_input) check_projected(spec, cell);
}

void check_form(const RecurrentSpec& spec, const RecurrentForm& form, const Execution& execution) {
  check_enum("precision", execution.precision, Precision::tf32);
  check_enum("algorithm", execution.algorithm, Algorithm::scan);
  const bool cuda = execution.device.is_cuda();
  const bool stores_bf16 = !cuda && form.dtype == DType::bf16;
  ops::check_dtype(form.dtype, execution.device, true);
  const bool or_floats = cuda || stores_bf16;
  require_argument(form.weights == form.dtype || (or_floats && form.weights == DType::f32), "weights",
                   to_string(form.weights), "{}{}", to_string(form.dtype), or_floats ? " or f32" : "");
  if (form.dtype == DType::f64 && execution.precision != Precision::full) {
    fail(ErrorCode::unsupported, "precision must be full for layers in double, not {}", to_string(execution.precision));
  }
  const bool tf32 = form.dtype == DType::f32 && execution.precision == Precision::tf32;
  if (cuda && !tf32 && execution.precision != Precision::full) {
    fail(ErrorCode::unsupported,
         "precision must be full, or tf32 for f32, on a GPU, where the form's dtype says the rest, not {}",
         to_string(execution.precision));
  }
  require(execution.algorithm != Algorithm::scan || find_cell(spec.cell).scan,
          "algorithm must be auto or sequential for cell {}, not scan: its gates depend on the previous state",
          spec.cell);
  ops::check_extent({form.rows, form.steps, form.positions}, form.has(CallFlag::lengths));
  require(!form.has(CallFlag::sorted) || (form.positions > 0 && execution.device.is_cuda()),
          "the flag sorted must be off unless rows are packed, on a GPU");
  require(form.restarts == Restarts::zeros || form.has(CallFlag::reset),
          "restarts other than zeros need the flag reset, which says where rows start again");
  require(form.restarts == Restarts::zeros || form.positions == 0,
          "restarts must be zeros for packed rows: give each part of a row as a row with its own state");
  ops::check_alignment(form.alignment, form.dtype);
  require(!form.has(CallFlag::every_state) || find_cell(spec.cell).states > 1,
          "the flag every_state must be off for cell {}, which has no state but its output", spec.cell);
  require(!form.has(CallFlag::every_state) || !form.has(CallFlag::step),
          "the flag every_state must be off for steps, which give their state as it is");
  if (!form.has(CallFlag::step)) return;
  require(form.steps == 1 && !form.has(CallFlag::training) && form.positions == 0 && !form.has(CallFlag::lengths) &&
              !form.has(CallFlag::reset),
          "the flag step is for one step, without a tape, lengths or resets");
  require(!stores_bf16, "dtype must be f32 or f64 for a step on the CPU, not bf16");
  require_argument(cuda || form.rows == 1, "rows", form.rows, "1 for a step on the CPU");
  require(!spec.projected_input, "the flag step is for layers that read x, not W x");
  require(spec.direction == Direction::forward,
          "a step needs direction forward, not {}: the end of a stream is not known", to_string(spec.direction));
  if (cuda && !find_cell(spec.cell).scan) {
    fail(ErrorCode::unsupported, "step on a GPU is of scan cells, not of {}, whose steps are forward calls", spec.cell);
  }
}

std::vector<LayerParameters> layer_parameters(const RecurrentSpec& spec) {
  const bool dense = !plan::cell_traits(spec.cell).info.scan;
  std::vector<LayerParameters> all(static_cast<std::size_t>(spec.layers * spec.directions()));
  int next = 0;
  for (LayerParameters& layer : all) {
    if (!spec.projected_input) layer.weight_ih = next++;
    if (dense) layer.weight_hh = next++;
    if (spec.bias != Bias::none) layer.bias_ih = next++;
    if (dense && spec.bias == Bias::both) layer.bias_hh = next++;
  }
  return all;
}

}  // namespace penstock::nn

namespace penstock {

std::vector<ParameterShape> parameter_shapes(const RecurrentSpec& spec) {
  nn::check_spec(spec);
  const Index gates = find_cell(spec.cell).gates * spec.hidden_size, head = spec.hidden_size / spec.heads;
  std::vector<ParameterShape> shapes;
  const std::vector<nn::LayerParameters> layers = nn::layer_parameters(spec);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Index layer = static_cast<Index>(i) / spec.directions(),
                direction = static_cast<Index>(i) % spec.directions();
    const bool reverse = spec.direction == Direction::reverse || direction == 1;
    const auto add = [&](int present, const char* what, std::vector<Index> shape) {
      if (present < 0) return;
      shapes.push_back({fmt::format("{}_l{}{}", what, layer, reverse ? "_reverse" : ""), std::move(shape)});
    };
    add(layers[i].weight_ih, "weight_ih", {gates, layer == 0 ? spec.input_size : spec.output_size()});
    add(layers[i].weight_hh, "weight_hh",
        spec.heads == 1 ? std::vector<Index>{gates, spec.hidden_size}
                        : std::vector<Index>{spec.heads, gates / spec.heads, head});
    add(layers[i].bias_ih, "bias_ih", {plan::cell_traits(spec.cell).bias_vectors() * spec.hidden_size});
    add(layers[i].bias_hh, "bias_hh", {gates});
  }
  return shapes;
}

}  // namespace penstock
