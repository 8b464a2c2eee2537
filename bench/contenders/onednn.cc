// oneDNN's recurrent primitives as a contender: time first, weights and sequences moved into place before the clock
// runs.

#include "bench/contenders/onednn.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <unordered_map>

#include "base/timing.h"
#include "bench/contenders/rows.h"

namespace penstock::bench {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using dnnl::rnn_direction;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;

/// How a cell's gates stand in oneDNN's order.
struct Gates {
  std::vector<Index> order;     // our gate at each of its places
  bool second_bias = false;     // the last gate has a bias of its own inside the product (reset after)
  bool has_cell_state = false;  // LSTM's c
};

Gates gates_of(const std::string& cell) {
  if (cell == "lstm") return {.order = {0, 1, 2, 3}, .has_cell_state = true};
  if (cell == "gru") return {.order = {1, 0, 2}, .second_bias = true};
  if (cell == "gru-before") return {.order = {1, 0, 2}};
  if (cell == "elman" || cell == "elman-relu") return {.order = {0}};
  throw NotOffered{"has no " + cell};
}

/// Parts that the primitives of all cells have in common.
struct Primitives {
  dnnl::primitive forward, backward;
  memory::desc weights_layer, weights_iter;                    // as the forward primitive wants them
  memory::desc backward_weights_layer, backward_weights_iter;  // as the backward primitive wants them
  memory::desc diff_weights_layer, diff_weights_iter, workspace;
};

/// Plain descriptions of all tensors; weights "any" let the primitive choose.
struct Descriptions {
  memory::desc x, state, cell_state, y, weights_layer, weights_iter, bias;

  /// `type`: of all but biases and LSTM's c, which stay floats; gradients are floats altogether.
  Descriptions(const Shape& shape, Index gates, Index biases, memory::data_type type) {
    const auto desc = [type](const memory::dims& dims, Tag tag) { return memory::desc(dims, type, tag); };
    x = desc({shape.steps, shape.rows, shape.inputs}, Tag::tnc);
    y = desc({shape.steps, shape.rows, shape.hidden}, Tag::tnc);
    state = desc({1, 1, shape.rows, shape.hidden}, Tag::ldnc);
    cell_state = memory::desc({1, 1, shape.rows, shape.hidden}, memory::data_type::f32, Tag::ldnc);
    weights_layer = desc({1, 1, shape.inputs, gates, shape.hidden}, Tag::any);
    weights_iter = desc({1, 1, shape.hidden, gates, shape.hidden}, Tag::any);
    bias = memory::desc({1, 1, biases, shape.hidden}, memory::data_type::f32, Tag::ldgo);
  }
};

template <class Forward, class Backward>
Primitives finish(const typename Forward::primitive_desc& forward, const typename Backward::primitive_desc* backward) {
  Primitives made{.forward = Forward(forward),
                  .backward = {},
                  .weights_layer = forward.weights_layer_desc(),
                  .weights_iter = forward.weights_iter_desc(),
                  .backward_weights_layer = {},
                  .backward_weights_iter = {},
                  .diff_weights_layer = {},
                  .diff_weights_iter = {},
                  .workspace = forward.workspace_desc()};
  if (backward == nullptr) return made;
  made.backward = Backward(*backward);
  made.backward_weights_layer = backward->weights_layer_desc();
  made.backward_weights_iter = backward->weights_iter_desc();
  made.diff_weights_layer = backward->diff_weights_layer_desc();
  made.diff_weights_iter = backward->diff_weights_iter_desc();
  return made;
}

// The constructors of primitive descriptions changed with version 3: the operation's own description is gone.
template <class P, class... Args>
typename P::primitive_desc describe(const dnnl::engine& engine, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, args...);
#else
  return typename P::primitive_desc(typename P::desc(args...), engine);
#endif
}
template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& hint, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine, args..., hint);
#else
  return typename P::primitive_desc(typename P::desc(args...), engine, hint);
#endif
}

constexpr auto left_to_right = rnn_direction::unidirectional_left2right;

/// `d` of the forward pass, `g` of the gradients.
template <class Forward, class Backward, class... Activation>
Primitives build_simple(const dnnl::engine& engine, const Descriptions& d, const Descriptions& g, bool training,
                        Activation... activation) {
  const prop_kind kind = training ? prop_kind::forward_training : prop_kind::forward_inference;
  const auto forward = describe<Forward>(engine, kind, activation..., left_to_right, d.x, d.state, d.weights_layer,
                                         d.weights_iter, d.bias, d.y, d.state);
  if (!training) return finish<Forward, Backward>(forward, nullptr);
  const auto backward = describe_backward<Backward>(
      engine, forward, prop_kind::backward, activation..., left_to_right, d.x, d.state, d.weights_layer, d.weights_iter,
      d.bias, d.y, d.state, g.x, g.state, g.weights_layer, g.weights_iter, g.bias, g.y, g.state);
  return finish<Forward, Backward>(forward, &backward);
}

Primitives build_lstm(const dnnl::engine& engine, const Descriptions& d, const Descriptions& g, bool training) {
  using Forward = dnnl::lstm_forward;
  using Backward = dnnl::lstm_backward;
  const prop_kind kind = training ? prop_kind::forward_training : prop_kind::forward_inference;
  const auto forward = describe<Forward>(engine, kind, left_to_right, d.x, d.state, d.cell_state, d.weights_layer,
                                         d.weights_iter, d.bias, d.y, d.state, d.cell_state);
  if (!training) return finish<Forward, Backward>(forward, nullptr);
  const auto backward =
      describe_backward<Backward>(engine, forward, prop_kind::backward, left_to_right, d.x, d.state, d.cell_state,
                                  d.weights_layer, d.weights_iter, d.bias, d.y, d.state, d.cell_state, g.x, g.state,
                                  g.cell_state, g.weights_layer, g.weights_iter, g.bias, g.y, g.state, g.cell_state);
  return finish<Forward, Backward>(forward, &backward);
}

Primitives build(const std::string& cell, const dnnl::engine& engine, const Descriptions& d, const Descriptions& g,
                 bool training) {
  using dnnl::algorithm;
  if (cell == "lstm") return build_lstm(engine, d, g, training);
  if (cell == "gru") return build_simple<dnnl::lbr_gru_forward, dnnl::lbr_gru_backward>(engine, d, g, training);
  if (cell == "gru-before") return build_simple<dnnl::gru_forward, dnnl::gru_backward>(engine, d, g, training);
  const algorithm activation = cell == "elman" ? algorithm::eltwise_tanh : algorithm::eltwise_relu;
  return build_simple<dnnl::vanilla_rnn_forward, dnnl::vanilla_rnn_backward>(engine, d, g, training, activation);
}

class OneDnn : public Contender {
 public:
  explicit OneDnn(const Problem& problem)
      : problem_(problem), gates_(gates_of(problem.test.cell)), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    use_threads();
    const bool training = problem.test.pass == Pass::training;
    const Shape shape = call_shape();
    const Index G = static_cast<Index>(gates_.order.size());
    const auto type = problem.test.dtype == "bf16" ? memory::data_type::bf16 : memory::data_type::f32;
    const Index biases = G + (gates_.second_bias ? 1 : 0);
    const Descriptions d(shape, G, biases, type), g(shape, G, biases, memory::data_type::f32);
    primitives_ = build(problem.test.cell, engine_, d, g, training);
    place(d);
    if (training) place_gradients(g);
  }

  Answers<float> check() override {
    use_threads();
    if (problem_.test.pass == Pass::step) return stream_from_start();
    if (problem_.test.pass == Pass::forward) {
      forward();
      return last();
    }
    write(DNNL_ARG_DIFF_DST_LAYER, problem_.masked_dy());
    train();
    Answers<float> answers = last();
    read_gradients(answers);
    write(DNNL_ARG_DIFF_DST_LAYER, problem_.dy);
    return answers;
  }

  Answers<float> last() override {
    if (problem_.test.pass == Pass::step) return stream_from_start();
    Answers<float> answers{
        .y = compared_rows(problem_, sequence(arguments_.at(DNNL_ARG_DST_LAYER), problem_.test.shape.hidden),
                           problem_.test.shape.hidden, true),
        .dx = {},
        .gradients = {}};
    if (problem_.test.pass == Pass::training) {
      answers.dx = compared_rows(problem_, values(backward_arguments_.at(DNNL_ARG_DIFF_SRC_LAYER)),
                                 problem_.test.shape.inputs, true);
    }
    return answers;
  }

  std::vector<double> sample(double seconds) override {
    use_threads();
    switch (problem_.test.pass) {
      case Pass::training:
        return time_calls(seconds, [&] { train(); });
      case Pass::step:
        return time_calls(seconds, [&] { step(); });
      case Pass::forward:
        break;
    }
    return time_calls(
        seconds, [&] { forward(); }, problem_.test.each_call);
  }

 private:
  /// A stream is called with one step at a time.
  Shape call_shape() const {
    Shape shape = problem_.test.shape;
    if (problem_.test.pass == Pass::step) shape.steps = 1;
    return shape;
  }
  void use_threads() const { omp_set_num_threads(problem_.test.threads); }

  static std::vector<float> values(const memory& m) {
    std::vector<float> copy(m.get_desc().get_size() / sizeof(float));
    std::memcpy(copy.data(), m.get_data_handle(), m.get_desc().get_size());
    return copy;
  }
  /// Returns the values of a sequence of any type, time first.
  std::vector<float> sequence(memory m, Index channels) {
    const Shape shape = call_shape();
    const memory::desc floats({shape.steps, shape.rows, channels}, memory::data_type::f32, Tag::tnc);
    return values(reordered(m, floats));
  }
  memory zeros(const memory::desc& desc) {
    memory m(desc, engine_);
    std::memset(m.get_data_handle(), 0, desc.get_size());
    return m;
  }
  memory reordered(memory& from, const memory::desc& desc) {
    if (from.get_desc() == desc) return from;
    memory to(desc, engine_);
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
    return to;
  }

  /// [C, G, H], the order of plain oneDNN weights, from ours [G*H, C].
  memory turned(const Array& array) {
    const Index H = problem_.test.shape.hidden, C = array.shape[1], G = static_cast<Index>(gates_.order.size());
    memory m(memory::desc({1, 1, C, G, H}, memory::data_type::f32, Tag::ldigo), engine_);
    auto* to = static_cast<float*>(m.get_data_handle());
    for (Index g = 0; g < G; ++g) {
      for (Index j = 0; j < H; ++j) {
        for (Index c = 0; c < C; ++c) to[(c * G + g) * H + j] = array.values[(gates_.order[g] * H + j) * C + c];
      }
    }
    return m;
  }
  /// The reverse, of gradients.
  std::vector<float> turned_back(memory m, Index C) {
    const Index H = problem_.test.shape.hidden, G = static_cast<Index>(gates_.order.size());
    const memory plain = reordered(m, memory::desc({1, 1, C, G, H}, memory::data_type::f32, Tag::ldigo));
    const auto* from = static_cast<const float*>(plain.get_data_handle());
    std::vector<float> array(static_cast<std::size_t>(G * H * C));
    for (Index g = 0; g < G; ++g) {
      for (Index j = 0; j < H; ++j) {
        for (Index c = 0; c < C; ++c) array[(gates_.order[g] * H + j) * C + c] = from[(c * G + g) * H + j];
      }
    }
    return array;
  }

  /// Their one bias is the sum of our two, but for the candidate of a GRU that resets after the product.
  std::vector<float> joined_bias(const Array& ih, const Array& hh) const {
    const Index H = problem_.test.shape.hidden, G = static_cast<Index>(gates_.order.size());
    std::vector<float> bias;
    for (Index g = 0; g < G; ++g) {
      for (Index j = 0; j < H; ++j) {
        const auto i = static_cast<std::size_t>(gates_.order[g] * H + j);
        const bool apart = gates_.second_bias && g == G - 1;
        bias.push_back(ih.values[i] + (apart ? 0.0f : hh.values[i]));
      }
    }
    if (gates_.second_bias) bias.insert(bias.end(), hh.values.end() - H, hh.values.end());
    return bias;
  }

  void place(const Descriptions& d) {
    const std::vector<Array> weights = problem_.weights_for("onednn");
    const auto find = [&](const char* name) -> const Array& { return *std::ranges::find(weights, name, &Array::name); };
    memory layer = turned(find("weight_ih_l0")), iter = turned(find("weight_hh_l0"));
    arguments_ = {{DNNL_ARG_SRC_LAYER, zeros(d.x)},
                  {DNNL_ARG_SRC_ITER, zeros(d.state)},
                  {DNNL_ARG_WEIGHTS_LAYER, reordered(layer, primitives_.weights_layer)},
                  {DNNL_ARG_WEIGHTS_ITER, reordered(iter, primitives_.weights_iter)},
                  {DNNL_ARG_BIAS, zeros(d.bias)},
                  {DNNL_ARG_DST_LAYER, zeros(d.y)},
                  {DNNL_ARG_DST_ITER, zeros(d.state)}};
    if (gates_.has_cell_state) {
      arguments_.emplace(DNNL_ARG_SRC_ITER_C, zeros(d.cell_state));
      arguments_.emplace(DNNL_ARG_DST_ITER_C, zeros(d.cell_state));
    }
    const std::vector<float> bias = joined_bias(find("bias_ih_l0"), find("bias_hh_l0"));
    std::memcpy(arguments_.at(DNNL_ARG_BIAS).get_data_handle(), bias.data(), bias.size() * sizeof(float));
    x_ = time_first(problem_.test.shape, problem_.x, problem_.test.shape.inputs);
    if (problem_.test.pass != Pass::step) {
      const Shape& shape = problem_.test.shape;
      const memory::desc floats({shape.steps, shape.rows, shape.inputs}, memory::data_type::f32, Tag::tnc);
      memory x(floats, engine_, x_.data());
      dnnl::reorder(x, arguments_.at(DNNL_ARG_SRC_LAYER)).execute(stream_, x, arguments_.at(DNNL_ARG_SRC_LAYER));
      stream_.wait();
    }
    if (problem_.test.pass != Pass::training) return;
    arguments_.emplace(DNNL_ARG_WORKSPACE, memory(primitives_.workspace, engine_));
    backward_arguments_ = arguments_;
    backward_arguments_.insert_or_assign(DNNL_ARG_WEIGHTS_LAYER, reordered(layer, primitives_.backward_weights_layer));
    backward_arguments_.insert_or_assign(DNNL_ARG_WEIGHTS_ITER, reordered(iter, primitives_.backward_weights_iter));
  }

  void place_gradients(const Descriptions& d) {
    backward_arguments_.emplace(DNNL_ARG_DIFF_SRC_LAYER, zeros(d.x));
    backward_arguments_.emplace(DNNL_ARG_DIFF_SRC_ITER, zeros(d.state));
    backward_arguments_.emplace(DNNL_ARG_DIFF_WEIGHTS_LAYER, zeros(primitives_.diff_weights_layer));
    backward_arguments_.emplace(DNNL_ARG_DIFF_WEIGHTS_ITER, zeros(primitives_.diff_weights_iter));
    backward_arguments_.emplace(DNNL_ARG_DIFF_BIAS, zeros(d.bias));
    backward_arguments_.emplace(DNNL_ARG_DIFF_DST_LAYER, zeros(d.y));
    backward_arguments_.emplace(DNNL_ARG_DIFF_DST_ITER, zeros(d.state));
    if (gates_.has_cell_state) {
      backward_arguments_.emplace(DNNL_ARG_DIFF_SRC_ITER_C, zeros(d.cell_state));
      backward_arguments_.emplace(DNNL_ARG_DIFF_DST_ITER_C, zeros(d.cell_state));
    }
    write(DNNL_ARG_DIFF_DST_LAYER, problem_.dy);
  }

  void write(int argument, const std::vector<float>& batch_first) {
    const std::vector<float> turned = time_first(problem_.test.shape, batch_first, problem_.test.shape.hidden);
    std::memcpy(backward_arguments_.at(argument).get_data_handle(), turned.data(), turned.size() * sizeof(float));
  }

  void read_gradients(Answers<float>& answers) {
    const Index I = problem_.test.shape.inputs, H = problem_.test.shape.hidden;
    const Index G = static_cast<Index>(gates_.order.size());
    answers.gradients.emplace_back("weight_ih_l0", turned_back(backward_arguments_.at(DNNL_ARG_DIFF_WEIGHTS_LAYER), I));
    answers.gradients.emplace_back("weight_hh_l0", turned_back(backward_arguments_.at(DNNL_ARG_DIFF_WEIGHTS_ITER), H));
    const std::vector<float> bias = values(backward_arguments_.at(DNNL_ARG_DIFF_BIAS));
    std::vector<float> ih(static_cast<std::size_t>(G * H));
    for (Index g = 0; g < G; ++g) std::copy_n(bias.begin() + g * H, H, ih.begin() + gates_.order[g] * H);
    std::vector<float> hh = ih;
    if (gates_.second_bias) std::copy(bias.end() - H, bias.end(), hh.end() - H);
    answers.gradients.emplace_back("bias_ih_l0", ih);
    answers.gradients.emplace_back("bias_hh_l0", hh);
  }

  void forward() {
    primitives_.forward.execute(stream_, arguments_);
    stream_.wait();
  }

  void train() {
    forward();
    for (const int argument : {DNNL_ARG_DIFF_WEIGHTS_LAYER, DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS}) {
      const memory& m = backward_arguments_.at(argument);
      std::memset(m.get_data_handle(), 0, m.get_desc().get_size());
    }
    primitives_.backward.execute(stream_, backward_arguments_);
    stream_.wait();
  }

  /// The states of two steps lie in two places, which change roles after every step.
  void step() {
    const Index B = problem_.test.shape.rows, I = problem_.test.shape.inputs;
    if (next_ == problem_.test.shape.steps) next_ = 0;
    arguments_.at(DNNL_ARG_SRC_LAYER).set_data_handle(&x_[next_++ * B * I]);
    forward();
    swap(DNNL_ARG_SRC_ITER, DNNL_ARG_DST_ITER);
    if (gates_.has_cell_state) swap(DNNL_ARG_SRC_ITER_C, DNNL_ARG_DST_ITER_C);
  }
  void swap(int one, int other) { std::swap(arguments_.at(one), arguments_.at(other)); }

  Answers<float> stream_from_start() {
    for (const int argument : {DNNL_ARG_SRC_ITER, DNNL_ARG_SRC_ITER_C}) {
      if (!arguments_.contains(argument)) continue;
      const memory& m = arguments_.at(argument);
      std::memset(m.get_data_handle(), 0, m.get_desc().get_size());
    }
    std::vector<float> all;
    for (next_ = 0; next_ < problem_.test.shape.steps;) {
      step();
      const std::vector<float> y = values(arguments_.at(DNNL_ARG_DST_LAYER));
      all.insert(all.end(), y.begin(), y.end());
    }
    return {.y = compared_rows(problem_, all, problem_.test.shape.hidden, true), .dx = {}, .gradients = {}};
  }

  const Problem& problem_;
  Gates gates_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Primitives primitives_;
  Arguments arguments_, backward_arguments_;
  std::vector<float> x_;  // [T, B, I]
  Index next_ = 0;
};

}  // namespace

Peer onednn() {
  const dnnl_version_t* version = dnnl_version();
  return {"onednn", fmt::format("{}.{}.{}", version->major, version->minor, version->patch), ""};
}

std::unique_ptr<Contender> make_onednn(const Problem& problem) {
  if (problem.test.shape.heads > 1) throw NotOffered{"has no heads"};
  if (is_bare_scan(problem.test.cell)) throw NotOffered{"has no scan"};
  if (problem.test.has_head()) throw NotOffered{"has no dense layer behind a step"};
  const bool sequences_in_bf16 = problem.test.dtype == "bf16" && problem.test.pass != Pass::step;
  if (problem.test.dtype != "f32" && !sequences_in_bf16) throw NotOffered{"is not asked for " + problem.test.dtype};
  gates_of(problem.test.cell);
  try {
    return std::make_unique<OneDnn>(problem);
  } catch (const dnnl::error& error) {
    throw NotOffered{fmt::format("refuses: {}", error.what())};
  }
}

}  // namespace penstock::bench
