// Operators with other activations, limits, peepholes or coupled gates become custom cells.

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <span>

#include "custom/trace.h"
#include "io/onnx/read/draft.h"
#include "penstock/cell.h"
#include "penstock/checksum.h"

namespace penstock::io::onnx {
namespace {

/// An activation with its parameters.
struct Activation {
  std::string name;  ///< In lower case.
  double alpha = 0, beta = 0;

  bool operator==(const Activation&) const = default;
};

/// What ONNX gives an activation that names no parameters. NaN: ONNX and ONNX Runtime differ.
struct Defaults {
  const char* name;
  std::optional<double> alpha, beta;
};
const Defaults kActivations[] = {
    {"affine", NAN, NAN}, {"elu", 1.0, {}},         {"hardsigmoid", 0.2, 0.5},    {"leakyrelu", 0.01, {}},
    {"relu", {}, {}},     {"scaledtanh", NAN, NAN}, {"sigmoid", {}, {}},          {"softplus", {}, {}},
    {"softsign", {}, {}}, {"tanh", {}, {}},         {"thresholdedrelu", NAN, {}},
};

/// A float of a file as a person wrote it: 0.1 for 0.1F.
double as_written(float value) { return std::stod(fmt::format("{}", value)); }

CellValue apply(const Activation& it, const CellValue& x) {
  if (it.name == "affine") return it.alpha * x + it.beta;
  if (it.name == "elu") return where(less(0, x), x, it.alpha * (exp(min(x, 0)) - 1));
  if (it.name == "hardsigmoid") return clamp(it.alpha * x + it.beta, 0, 1);
  if (it.name == "leakyrelu") return where(less(x, 0), it.alpha * x, x);
  if (it.name == "relu") return relu(x);
  if (it.name == "scaledtanh") return it.alpha * tanh(it.beta * x);
  if (it.name == "sigmoid") return sigmoid(x);
  if (it.name == "softplus") return softplus(x);
  if (it.name == "softsign") return x / (1 + abs(x));
  if (it.name == "thresholdedrelu") return where(less(it.alpha, x), x, 0);
  return tanh(x);
}

/// Returns the activations of all directions. Each takes its parameters from the lists in the order of names.
std::vector<Activation> read_activations_of(const CellForm& form, const Draft& draft) {
  std::vector<Activation> found;
  std::size_t alphas = 0, betas = 0;
  const auto parameter = [&](const std::vector<float>& given, std::size_t& used, const std::optional<double>& usual,
                             const std::string& name, const char* attribute) {
    if (!usual) return 0.0;
    if (used < given.size()) return as_written(given[used++]);
    if (std::isnan(*usual)) {
      draft.refuse(ErrorCode::unsupported, "its activation {} has no {}, whose default is not settled", name,
                   attribute);
    }
    return *usual;
  };
  for (const std::string& given : form.activations) {
    std::string name = given;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto* const known = std::ranges::find(kActivations, name, &Defaults::name);
    if (known == std::end(kActivations)) {
      std::vector<std::string> names;
      for (const Defaults& each : kActivations) names.emplace_back(each.name);
      draft.refuse(ErrorCode::unsupported, "its activation is {}, expected one of {}", in_quotes(given),
                   fmt::join(names, ", "));
    }
    Activation activation{name};
    activation.alpha = parameter(form.alpha, alphas, known->alpha, given, "activation_alpha");
    activation.beta = parameter(form.beta, betas, known->beta, given, "activation_beta");
    found.push_back(std::move(activation));
  }
  if (alphas < form.alpha.size() || betas < form.beta.size()) {
    draft.refuse(
        ErrorCode::unsupported,
        "it has {} activation_alpha and {} activation_beta, and its activations {} take {} and {}: give as many",
        form.alpha.size(), form.beta.size(), fmt::join(form.activations, ", "), alphas, betas);
  }
  return found;
}

bool are(const std::vector<Activation>& given, std::initializer_list<const char*> names) {
  return std::ranges::equal(given, names, [](const Activation& a, const char* b) { return a.name == b; });
}

/// Returns the built-in cell of these activations; empty if there is none.
std::string built_in(const CellForm& form, const std::vector<Activation>& given) {
  if (form.clip != 0 || form.coupled || form.peepholes) return "";
  if (form.op == "LSTM") return are(given, {"sigmoid", "tanh", "tanh"}) ? "lstm" : "";
  if (form.op == "RNN") return are(given, {"tanh"}) ? "elman" : are(given, {"relu"}) ? "elman-relu" : "";
  if (!are(given, {"sigmoid", "tanh"})) return "";
  return form.reset_after ? "gru" : "gru-before";
}

/// The equations of an operator. Gates are in Penstock's order.
class Equations {
 public:
  Equations(const CellForm& form, std::vector<Activation> given) : form_(form), given_(std::move(given)) {}

  std::vector<CellValue> operator()(const CellSymbols& of) const {
    if (form_.op == "LSTM") return lstm(of);
    if (form_.op == "GRU") return gru(of);
    return {apply(given_[0], limited(of.wx[0] + of.rh[0]))};
  }

 private:
  CellValue limited(const CellValue& x) const {
    const double limit = as_written(form_.clip);
    return limit == 0 ? x : clamp(x, -limit, limit);
  }
  std::vector<CellValue> gru(const CellSymbols& of) const {
    const CellValue r = apply(given_[0], limited(of.wx[0] + of.rh[0])),
                    z = apply(given_[0], limited(of.wx[1] + of.rh[1])),
                    n = apply(given_[1], limited(of.wx[2] + r * of.rh[2]));
    return {(1 - z) * n + z * of.s[0]};
  }
  std::vector<CellValue> lstm(const CellSymbols& of) const {
    std::size_t seen = 0;
    const auto gate = [&](std::size_t at, const CellValue& state) {
      const CellValue sum = of.wx[at] + of.rh[at];
      return apply(given_[0], limited(form_.peepholes ? sum + of.p[seen++] * state : sum));
    };
    const std::size_t candidate = form_.coupled ? 1 : 2;
    const CellValue i = gate(0, of.s[1]), f = form_.coupled ? 1 - i : gate(1, of.s[1]);
    const CellValue g = apply(given_[1], limited(of.wx[candidate] + of.rh[candidate]));
    const CellValue c = f * of.s[1] + i * g;
    const CellValue o = gate(candidate + 1, c);
    return {o * apply(given_[2], c), c};
  }

  const CellForm& form_;
  std::vector<Activation> given_;
};

}  // namespace

std::string cell_of(const CellForm& form, const Draft& draft) {
  std::vector<Activation> given = read_activations_of(form, draft);
  const auto middle = given.begin() + static_cast<std::ptrdiff_t>(form.each);
  if (middle != given.end() && !std::equal(given.begin(), middle, middle)) {
    draft.refuse(ErrorCode::unsupported, "its activations {} or their parameters differ between its directions",
                 fmt::join(form.activations, ", "));
  }
  given.erase(middle, given.end());
  if (std::string name = built_in(form, given); !name.empty()) return name;
  if (form.op == "GRU" && !form.reset_after) {
    draft.refuse(
        ErrorCode::unsupported,
        "it has linear_before_reset=0 and other activations or a clip, which no cell here has together: export "
        "it with linear_before_reset=1");
  }
  CellDefinition definition;
  definition.description = fmt::format("ONNX {} with {}", form.op, fmt::join(form.activations, ", "));
  if (form.op == "LSTM") definition.states = {"h", "c"};
  definition.gates = form.op == "RNN" ? 1 : form.op == "LSTM" && !form.coupled ? 4 : 3;
  if (form.peepholes) {
    for (const char* const gate : {"i", "f", "o"}) {
      if (!form.coupled || gate[0] != 'f') definition.learnt.push_back({gate, 0.0});
    }
  }
  const Equations equations(form, std::move(given));
  // Cells are known by their names, so equal equations need equal names and others need other ones.
  definition.name = "onnx";
  const std::string unnamed = custom::to_json(custom::trace_cell(definition, equations));
  const std::array<std::span<const std::byte>, 1> parts = {std::as_bytes(std::span(unnamed))};
  definition.name = "onnx-" + checksum_of(parts);
  return custom::to_json(custom::trace_cell(definition, equations));
}

}  // namespace penstock::io::onnx
