// The recurrence of a dense cell by itself as a contender: what others time who are given the product of the input.

#include "backend/cuda/dense/executable.h"
#include "backend/cuda/product/gradient_products.h"
#include "bench/contenders/on_gpu.h"
#include "penstock/error.h"

namespace penstock::bench {
namespace {

/// The products with the input's weights before and behind the recurrence are made here, but not in timed calls.
class GpuRecurrence : public OnGpu {
 public:
  explicit GpuRecurrence(const Problem& problem)
      : OnGpu(problem),
        spec_{.cell = problem.test.cell, .hidden = shape().hidden, .heads = shape().heads, .storage = storage_},
        weights_(problem.weights_for("penstock-recurrence")),
        x_(on_gpu(problem.x)),
        weight_ih_(on_gpu(values_of("weight_ih_l0"))),
        weight_hh_(on_gpu(values_of("weight_hh_l0"))),
        bias_ih_(floats(values_of("bias_ih_l0"))),
        bias_hh_(floats(values_of("bias_hh_l0"))),
        wx_(room_for(positions() * width())),
        y_(room_for(positions() * shape().hidden)) {
    multiply_input();
    if (training()) make_room_for_gradients();
    forward_.emplace(stream_.device(), spec_, forward_call());
    if (training()) backward_.emplace(stream_.device(), spec_, backward_call(dy_));
    forward_workspace_ = room(forward_->workspace_bytes());
    // Its own: it is zero before its first use, and leaves what it counts with as it was.
    backward_workspace_ = room(backward_ ? backward_->workspace_bytes() : 0);
  }

  Answers<float> last() override {
    Answers<float> answers{.y = rows_of(y_, shape().hidden), .dx = {}, .gradients = {}};
    if (!training()) return answers;
    multiply_gradients();
    answers.dx = rows_of(dx_, shape().inputs);
    return answers;
  }

 private:
  const std::vector<float>& values_of(const std::string& name) const {
    return std::ranges::find(weights_, name, &Array::name)->values;
  }
  Buffer floats(const std::vector<float>& values) {
    Buffer buffer(stream_, values.size() * sizeof(float));
    buffer.upload(values.data(), buffer.bytes());
    return buffer;
  }
  Index width() const { return find_cell(spec_.cell).gates * spec_.hidden; }
  DeviceSequence all_of(const Buffer& buffer, Index channels) const {
    return {buffer.address(), shape().steps * channels, channels};
  }

  void multiply_input() {
    ProductShape product{.storage = storage_, .result = storage_, .m = positions(), .n = width(), .k = shape().inputs};
    product.b_transposed = true;
    product.a_stride = product.b_stride = shape().inputs, product.d_stride = width();
    const MatrixProduct multiply(stream_.device(), product);
    const Buffer workspace = room(multiply.workspace_bytes());
    multiply.run(x_.address(), weight_ih_.address(), wx_.address(), 0, workspace.address(), stream_.handle());
    stream_.synchronize();
  }

  void make_room_for_gradients() {
    cuda::DenseBatch batch = forward_call().batch;
    const cuda::DenseTapeBytes tape = tape_bytes(spec_, batch);
    sums_ = room(tape.sums), states_ = room(tape.states);
    dy_ = on_gpu(problem_.dy);
    dwx_ = room_for(positions() * width()), drh_ = room_for(positions() * width());
    dweight_hh_ = room(values_of("weight_hh_l0").size() * sizeof(float));
    dbias_ih_ = room(bias_ih_.bytes()), dbias_hh_ = room(bias_hh_.bytes());
    dweight_ih_ = room(values_of("weight_ih_l0").size() * sizeof(float));
    dx_ = room_for(positions() * shape().inputs);
  }

  cuda::DenseForward forward_call() const {
    cuda::DenseForward call;
    call.batch = {.rows = shape().rows, .steps = shape().steps};
    call.wx = all_of(wx_, width()), call.y = all_of(y_, shape().hidden);
    call.weights = {weight_hh_.address(), bias_ih_.address(), bias_hh_.address()};
    if (training()) call.tape = {sums_.address(), states_.address()};
    return call;
  }
  cuda::DenseBackward backward_call(const Buffer& dy) const {
    const cuda::DenseForward of = forward_call();
    cuda::DenseBackward call;
    call.batch = of.batch;
    call.wx = of.wx, call.y = of.y, call.dy = all_of(dy, shape().hidden);
    call.weights = of.weights;
    call.tape = of.tape;
    call.dwx = dwx_.address();
    if (plan::cell_traits(spec_.cell).split_gradients) call.drh = drh_.address();
    call.gradients = {dweight_hh_.address(), dbias_ih_.address(), dbias_hh_.address()};
    return call;
  }

  void run(const Buffer& dy) override {
    forward_->run(forward_call(), forward_workspace_.address(), stream_.handle());
    if (training()) backward_->run(backward_call(dy), backward_workspace_.address(), stream_.handle());
  }

  void multiply_gradients() {
    const cuda::GradientShape products{.storage = storage_,
                                       .positions = positions(),
                                       .inputs = shape().inputs,
                                       .outputs = width(),
                                       .x_stride = shape().inputs,
                                       .bias = false};
    const cuda::GradientProducts multiply(stream_.device(), products);
    const Buffer sums = room(multiply.sums_bytes()), workspace = room(multiply.products_bytes());
    multiply.run({.x = x_.address(),
                  .weight = weight_ih_.address(),
                  .dy = dwx_.address(),
                  .dweight = dweight_ih_.address(),
                  .dx = dx_.address()},
                 sums.address(), workspace.address(), stream_.handle());
    stream_.synchronize();
  }

  void add_gradients(Answers<float>& answers) override {
    const auto add = [&](const std::string& name, const Buffer& gradient) {
      const auto count = static_cast<Index>(values_of(name).size());
      answers.gradients.emplace_back(name, host(gradient, 0, count, Storage::f32));
    };
    add("weight_ih_l0", dweight_ih_), add("weight_hh_l0", dweight_hh_);
    add("bias_ih_l0", dbias_ih_), add("bias_hh_l0", dbias_hh_);
  }

  cuda::DenseSpec spec_;
  std::vector<Array> weights_;
  Buffer x_, weight_ih_, weight_hh_, bias_ih_, bias_hh_, wx_, y_, forward_workspace_, backward_workspace_;
  Buffer sums_, states_, dwx_, drh_, dweight_ih_, dweight_hh_, dbias_ih_, dbias_hh_, dx_;  // training
  std::optional<cuda::DenseForwardExecutable> forward_;
  std::optional<cuda::DenseBackwardExecutable> backward_;
};

}  // namespace

std::unique_ptr<Contender> make_recurrence_on_gpu(const Problem& problem) {
  if (find_cell(problem.test.cell).scan) throw NotOffered{"is for cells with a recurrent matrix"};
  return std::make_unique<GpuRecurrence>(problem);
}

}  // namespace penstock::bench
