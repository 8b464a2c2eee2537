// Models of sound as JSON of RTNeural. With one block and no norms, y = head(x + R(x)) of x = A u + a, for a sample u
// and a recurrent layer R. So A and a become part of the weights of R, and y = W R(u) + k u + c.

#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "io/model_json.h"
#include "nn/model/model_impl.h"
#include "penstock/file_writer.h"
#include "penstock/rtneural.h"

namespace penstock {
namespace io::audio {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

void check(const Model& model) {
  const ModelSpec& spec = model.spec();
  const auto require_that = [](bool holds, const auto& shown, const char* name, const char* expected) {
    if (!holds) {
      fail(ErrorCode::unsupported, "RTNeural cannot express this model: {} is {}, expected {}", name, shown, expected);
    }
  };
  if (model.data().sample_rate == 0) fail(ErrorCode::unsupported, "the export to RTNeural is for models of sound");
  require_that(spec.cell == "lstm" || spec.cell == "gru", in_quotes(spec.cell), "cell", "lstm or gru");
  require_that(spec.blocks == 1, spec.blocks, "blocks", "1: RTNeural has no sums of layers");
  require_that(!spec.end_norms, "all", "norms", "between: train with --norms between");
  require_that(spec.heads == 1, spec.heads, "heads", "1");
  require_that(spec.convolution == 0, spec.convolution, "conv", "0");
  require_that(spec.feed_forward == 0.0, spec.feed_forward, "ffn", "0");
  require_that(spec.members == 1, spec.members, "members", "1");
  require_that(spec.branch == nullptr && spec.int8.empty() && !spec.from_last, "more than layers of floats", "it",
               "layers of floats alone");
}

class Exporter {
 public:
  explicit Exporter(const Model& model) : model_(model), lstm_(model.spec().cell == "lstm") { check(model); }

  nlohmann::json write() {
    const double in_scale = model_.data().inputs[0].scale, out_scale = model_.data().targets[0].scale;
    Matrix in = matrix("input.weight"), w_hh = matrix("blocks.0.recurrent.weight_hh");
    const Matrix w_ih = matrix("blocks.0.recurrent.weight_ih"), bias = matrix("blocks.0.recurrent.bias_ih");
    const Vector offset = matrix("input.bias")[0], head = matrix("head.weight")[0];
    hidden_ = w_hh[0].size();
    Vector column, kernel, biases, out = head;
    for (const Vector& each : in) column.push_back(each[0] / in_scale);
    for (std::size_t row = 0; row < w_ih.size(); ++row) {
      kernel.push_back(dot(w_ih[row], column));
      biases.push_back(dot(w_ih[row], offset) + bias[0][row]);
    }
    double constant = matrix("head.bias")[0][0] + dot(head, offset);
    if (find("blocks.0.projection.weight") != nullptr) {
      const Matrix weight = matrix("blocks.0.projection.weight");
      out.assign(hidden_, 0.0);
      for (std::size_t i = 0; i < weight.size(); ++i) {
        for (std::size_t j = 0; j < hidden_; ++j) out[j] += head[i] * weight[i][j];
      }
      constant += dot(head, matrix("blocks.0.projection.bias")[0]);
    }
    for (double& each : out) each *= out_scale;
    out.push_back(dot(head, column) * out_scale / kSmall);
    return json(kernel, w_hh, biases, out, constant * out_scale);
  }

 private:
  // tanh(tanh(x)) is x (1 - 2/3 x^2), and 2/3 kSmall^2 is less than half a unit in the last place of a float.
  static constexpr double kSmall = 0x1p-13;
  static constexpr double kOpen = 40.0;  // a sigmoid of it is 1

  const nn::ParameterEntry* find(const char* name) const { return model_.impl().parameters->layout().find(name); }
  /// Rows of a matrix; a vector is one row.
  Matrix matrix(const char* name) const {
    const nn::ParameterEntry* const entry = find(name);
    require(entry != nullptr, "the model has no {}", name);
    const auto values = std::as_const(*model_.impl().parameters).value(*entry);
    const std::size_t columns = static_cast<std::size_t>(entry->shape.back());
    Matrix rows;
    for (auto at = values.begin(); at != values.end(); at += static_cast<std::ptrdiff_t>(columns)) {
      rows.emplace_back(at, at + static_cast<std::ptrdiff_t>(columns));
    }
    return rows;
  }
  static double dot(const Vector& a, const Vector& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  /// Values of all gates in the order of Keras. `last` are those of the unit that carries the input.
  Vector gates(const auto& value, const Vector& last) const {
    // Ours: i, f, g, o and r, z, n; Keras: i, f, c, o and z, r, h.
    const std::vector<std::size_t> order =
        lstm_ ? std::vector<std::size_t>{0, 1, 2, 3} : std::vector<std::size_t>{1, 0, 2};
    Vector all;
    for (const std::size_t gate : order) {
      for (std::size_t unit = 0; unit < hidden_; ++unit) all.push_back(rounded(value(gate * hidden_ + unit)));
      all.push_back(last[gate]);
    }
    return all;
  }
  static double rounded(double value) { return static_cast<double>(static_cast<float>(value)); }

  nlohmann::json json(const Vector& kernel, const Matrix& w_hh, const Vector& biases, const Vector& out,
                      double constant) const {
    const Vector none(4, 0.0), of_input = {0.0, 0.0, kSmall, 0.0};
    const Vector of_bias = lstm_ ? Vector{kOpen, -kOpen, 0.0, kOpen} : Vector{0.0, -kOpen, 0.0};
    Matrix states;
    for (std::size_t from = 0; from <= hidden_; ++from) {
      states.push_back(gates([&](std::size_t row) { return from < hidden_ ? w_hh[row][from] : 0.0; }, none));
    }
    const Vector bias = gates([&](std::size_t row) { return biases[row]; }, of_bias);
    nlohmann::json weights = {Matrix{gates([&](std::size_t row) { return kernel[row]; }, of_input)}, states};
    weights.push_back(lstm_ ? nlohmann::json(bias) : nlohmann::json(Matrix{bias, Vector(bias.size(), 0.0)}));
    Matrix dense;
    for (const double each : out) dense.push_back({rounded(each)});
    const auto layer = [](const char* type, const char* activation, std::size_t size, nlohmann::json arrays) {
      return nlohmann::json{{"type", type},
                            {"activation", activation},
                            {"shape", {nullptr, nullptr, size}},
                            {"weights", std::move(arrays)}};
    };
    return {{"in_shape", {nullptr, nullptr, 1}},
            {"samplerate", model_.data().sample_rate},
            {"layers",
             {layer(lstm_ ? "lstm" : "gru", "tanh", hidden_ + 1, std::move(weights)),
              layer("dense", "", 1, {dense, Vector{rounded(constant)}})}}};
  }

  const Model& model_;
  bool lstm_;
  std::size_t hidden_ = 0;
};

}  // namespace
}  // namespace io::audio

std::string to_rtneural(const Model& model) { return io::to_text(io::audio::Exporter(model).write()); }

void save_rtneural(const Model& model, const std::string& path) { write_file(path, to_rtneural(model)); }

}  // namespace penstock
