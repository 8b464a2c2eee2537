#include "fuzz/damage.h"

namespace penstock::test {
namespace {

constexpr const char* rtneural =
    R"({"in_shape": [null, null, 1], "in_skip": 1, "samplerate": "48000", "layers": [
{"type": "dense", "activation": "tanh", "shape": [null, null, 2], "weights": [[[0.5, -1]], [0.1, 2e-1]]},
{"type": "conv1d", "activation": "", "shape": [2], "kernel_size": [2], "dilation": [3], "groups": 2,
 "weights": [[[[1, 2]], [[3, 4]]], [0, 0]]},
{"type": "gru", "activation": "tanh", "shape": [1],
 "weights": [[[1, 2, 3], [4, 5, 6]], [[1, 2, 3]], [[1, 2, 3], [4, 5, 6]]]},
{"type": "prelu", "activation": "", "shape": [1], "weights": [[[0.1]]]},
{"type": "batchnorm", "shape": [1], "epsilon": 0.01, "weights": [[0], [1]]},
{"type": "lstm", "shape": [1], "weights": [[[1, 2, 3, 4]], [[1, 2, 3, 4]], [1, 2, 3, 4]]},
{"type": "activation", "activation": "softmax", "shape": [1], "weights": []}]})";

constexpr const char* two_axes =
    R"({"in_shape": [null, null, 4, 1], "layers": [
{"type": "conv2d", "shape": [null, null, 2, 2], "kernel_size_time": 2, "kernel_size_feature": 3, "dilation": 2,
 "strides": 2, "num_filters_in": 1, "num_features_in": 4, "num_filters_out": 2, "padding": "same",
 "weights": [[[[[1, 2]], [[3, 4]], [[5, 6]]], [[[1, 2]], [[3, 4]], [[5, 6]]]], [0, 1]]},
{"type": "batchnorm2d", "shape": [null, null, 2, 2], "epsilon": 0.5, "num_filters_in": 2, "num_features_in": 2,
 "weights": [[0, 1], [1, 2]]}]})";

constexpr const char* guitarml =
    R"({"model_data": {"model": "SimpleRNN", "input_size": 1, "skip": 1, "output_size": 1, "unit_type": "LSTM",
"num_layers": 1, "hidden_size": 1, "bias_fl": true}, "state_dict": {"rec.weight_ih_l0": [[1], [2], [3], [4]],
"rec.weight_hh_l0": [[1], [2], [3], [4]], "rec.bias_ih_l0": [1, 2, 3, 4], "rec.bias_hh_l0": [1, 2, 3, 4],
"lin.weight": [[1]], "lin.bias": [0]}})";

constexpr const char* nam =
    R"({"version": "0.5.4", "architecture": "LSTM", "config": {"input_size": 1, "hidden_size": 1, "num_layers": 1},
"weights": [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 0.5, 0.25, 1, 0], "sample_rate": 48000})";

TEST(Fuzz, DamagedAudioModels) {
  feed_damaged({rtneural, two_axes, guitarml, nam},
               {"null",      "true", "1e38",    "-1",          "65536",        "16777216",
                "[",         "]",    "{",       "}",           "[[",           "]]",
                ",",         "\"",   "\\u0000", "\"layers\":", "\"weights\":", "\"shape\":",
                "\"type\":", "lstm", "gru",     "dense",       "conv1d",       "elu",
                "[[1]]"},
               [](const std::string& text, Random& /*random*/) { return text; });
}

}  // namespace
}  // namespace penstock::test
