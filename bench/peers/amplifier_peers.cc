// LSTMs of other libraries as peers of amplifier_times: bench/amplifiers.py compiles this file once for each peer, with
// -DPEER_RTNEURAL or -DPEER_NEURAL_AUDIO and the folders of the library's headers. Their sizes are fixed here.
#include <cstddef>
#include <vector>

#if defined(PEER_RTNEURAL)
#include <RTNeural/RTNeural.h>
using Json = nlohmann::json;
#else
#include <NeuralAudio/LSTM.h>

#include <json.hpp>
using Json = nlohmann::json;
#endif

namespace {

struct Peer {
  virtual ~Peer() = default;
  virtual void run(const float* x, float* y, std::size_t samples) = 0;
};

#if defined(PEER_RTNEURAL)
template <int layers, int hidden>
struct ModelOf;
template <int hidden>
struct ModelOf<1, hidden> {
  using Type =
      RTNeural::ModelT<float, 1, 1, RTNeural::LSTMLayerT<float, 1, hidden>, RTNeural::DenseT<float, hidden, 1>>;
};
template <int hidden>
struct ModelOf<2, hidden> {
  using Type = RTNeural::ModelT<float, 1, 1, RTNeural::LSTMLayerT<float, 1, hidden>,
                                RTNeural::LSTMLayerT<float, hidden, hidden>, RTNeural::DenseT<float, hidden, 1>>;
};

template <int layers, int hidden>
class Sized : public Peer {
 public:
  explicit Sized(const std::vector<float>& weights) {
    const float* at = weights.data();
    load<0>(at);
    model_.template get<layers>().setWeights(std::vector<std::vector<float>>{{at, at + hidden}});
    model_.template get<layers>().setBias(at + hidden);
    model_.reset();
  }
  void run(const float* x, float* y, std::size_t samples) override {
    for (std::size_t i = 0; i < samples; ++i) {
      alignas(64) const float sample[16] = {x[i]};  // a whole vector, which it may load
      y[i] = model_.forward(sample);
    }
  }

 private:
  /// Reads layer by layer: rows of input and recurrent weights side by side, a bias, initial states.
  template <int layer>
  void load(const float*& at) {
    if constexpr (layer < layers) {
      constexpr int inputs = layer == 0 ? 1 : hidden;
      std::vector<std::vector<float>> input(inputs, std::vector<float>(4 * hidden));
      std::vector<std::vector<float>> recurrent(hidden, std::vector<float>(4 * hidden));
      for (int row = 0; row < 4 * hidden; ++row) {
        for (int i = 0; i < inputs; ++i) input[i][row] = *at++;
        for (int i = 0; i < hidden; ++i) recurrent[i][row] = *at++;
      }
      auto& lstm = model_.template get<layer>();
      lstm.setWVals(input);
      lstm.setUVals(recurrent);
      lstm.setBVals(std::vector<float>(at, at + 4 * hidden));
      at += 6 * hidden;
      load<layer + 1>(at);
    }
  }
  typename ModelOf<layers, hidden>::Type model_;
};
#else
template <int layers, int hidden>
class Sized : public Peer {
 public:
  explicit Sized(const std::vector<float>& weights) { model_.SetNAMWeights(weights); }
  void run(const float* x, float* y, std::size_t samples) override { model_.Process(x, y, samples); }

 private:
  NeuralAudio::LSTMModelT<layers, hidden> model_;
};
#endif

template <int layers, int hidden, int... more>
Peer* open(int of_layers, int of_hidden, const std::vector<float>& weights) {
  if (of_layers == layers && of_hidden == hidden) return new Sized<layers, hidden>(weights);
  if constexpr (sizeof...(more) > 0) return open<more...>(of_layers, of_hidden, weights);
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* peer_open(const char* nam) {
  const Json file = Json::parse(nam);
  const std::vector<float> weights = file["weights"];
  return open<1, 8, 1, 16, 1, 24, 1, 32, 1, 40, 2, 16, 1, 64, 1, 128>(file["config"]["num_layers"],
                                                                      file["config"]["hidden_size"], weights);
}

extern "C" __attribute__((visibility("default"))) void peer_run(void* model, const float* x, float* y,
                                                                std::size_t samples) {
  static_cast<Peer*>(model)->run(x, y, samples);
}
