// Programs of causal convolutions, as the public interface shows them.

#include "penstock/convolution_program.h"

#include <array>
#include <tuple>

#include "backend/cpu/instruction_sets.h"
#include "base/check.h"
#include "base/denormals.h"
#include "base/pool.h"
#include "base/shared_cache.h"
#include "base/threads.h"
#include "ops/pointwise/causal_convolution.h"
#include "ops/program_check.h"
#include "ops/tensor_check.h"

namespace penstock {
namespace {

constexpr std::size_t gpu_alignment = 16;

}  // namespace

struct ConvolutionProgram::Impl {
  ConvolutionCallForm form;
  ops::Target target;
  std::size_t bytes = 0;
  mutable Pool<ops::Executable> forward, backward;

  Impl(const ConvolutionCallForm& f, const Execution& e)
      : form(f),
        target(ops::target_of_form(f, e)),
        forward([this] {
          return ops::causal_convolution_forward({form.channels, form.taps}).prepare(target);
        }),
        backward([this] {
          return ops::causal_convolution_backward({form.channels, form.taps}).prepare(target);
        }) {
    const Pool<ops::Executable>::Lease there(forward);
    if (!form.has(CallFlag::training)) return;
    const Pool<ops::Executable>::Lease back(backward);
    bytes = back->scratch_bytes();
  }

  void check(const char* name, const Tensor& tensor, DType type, std::initializer_list<Index> shape) const {
    const std::size_t aligned = target.device.is_cuda() ? gpu_alignment : size_of(type);
    ops::require_tensor(name, tensor, type, target.device, aligned);
    ops::require_gapless(name, tensor, shape);
  }
  void check_sequence(const char* name, const Tensor& tensor) const {
    check(name, tensor, form.dtype, {form.rows, form.steps, form.channels});
  }
  void check_weight(const char* name, const Tensor& tensor) const {
    check(name, tensor, target.master(), {form.taps, form.channels});
  }
  void check_bias(const char* name, const Tensor& tensor) const {
    check(name, tensor, target.master(), {form.channels});
  }
  void check_state(const Tensor& state) const {
    if (!state) return;
    ops::require_tensor("state", state, target.master(), target.device, size_of(target.master()));
    ops::require_gapless("state", state, {form.rows, form.taps - 1, form.channels});
  }

  ops::Call call(const Context& context, const Batch& batch) const {
    ops::require_device(context, target.device);
    ops::require_batch(batch, {form.rows, form.steps, 0}, form.has(CallFlag::lengths), form.has(CallFlag::reset),
                       target.device);
    ops::Call call;
    call.batch = batch;
    call.threads = target.execution.threads;
    call.stream = context.stream;
    return call;
  }
};

ConvolutionProgram::ConvolutionProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvolutionProgram::~ConvolutionProgram() = default;

std::shared_ptr<const ConvolutionProgram> ConvolutionProgram::get(const ConvolutionCallForm& form,
                                                                  const Execution& execution) {
  using Key = std::tuple<ConvolutionCallForm, Execution, unsigned>;  // with the number of the instruction set
  static SharedCache<Key, const ConvolutionProgram> recent(ops::kept_programs);
  Execution whole = execution;
  whole.threads = execution.device.is_cuda() ? 1 : resolve_threads(execution.threads);
  return recent.get({form, whole, cpu::isa_generation()}, [&] {
    constexpr Index most = Index{1} << 30;
    ops::check_dtype(form.dtype, whole.device);
    ops::check_extent({form.rows, form.steps, 0}, form.has(CallFlag::lengths));
    require_argument(form.channels >= 1 && form.channels <= most, "channels", form.channels, "1 to {}", most);
    require_argument(form.taps >= 1 && form.taps <= most, "taps", form.taps, "1 to {}", most);
    // The constructor is private. NOLINTNEXTLINE(modernize-make-shared)
    return std::shared_ptr<const ConvolutionProgram>(new ConvolutionProgram(std::make_unique<Impl>(form, whole)));
  });
}

std::size_t ConvolutionProgram::workspace_bytes() const { return impl_->bytes; }

void ConvolutionProgram::forward(const Context& context, const Forward& given) const {
  const Impl& impl = *impl_;
  const ops::Call call = impl.call(context, given.batch);
  impl.check_sequence("x", given.x);
  impl.check_state(given.state);
  impl.check_weight("weight", given.weight);
  impl.check_bias("bias", given.bias);
  impl.check_sequence("y", given.y);
  ops::require_no_overlap({"y", given.y},
                          {{"x", given.x}, {"state", given.state}, {"weight", given.weight}, {"bias", given.bias}});
  const std::array<void*, 6> operands{given.x.data,    given.state.data, given.weight.data,
                                      given.bias.data, given.y.data,     nullptr};
  const Pool<ops::Executable>::Lease pass(impl.forward);
  const WithDenormals as_zeros(DenormalMode::zeros());
  pass->run(call, {operands.data()});
}

void ConvolutionProgram::backward(const Context& context, const Backward& given) const {
  const Impl& impl = *impl_;
  require(impl.form.has(CallFlag::training), "a backward pass needs a program whose form is of training");
  const ops::Call call = impl.call(context, given.batch);
  ops::require_memory("workspace", given.workspace, impl.bytes);
  impl.check_sequence("x", given.x);
  impl.check_state(given.state);
  impl.check_weight("weight", given.weight);
  impl.check_sequence("dy", given.dy);
  impl.check_weight("dweight", given.dweight);
  impl.check_bias("dbias", given.dbias);
  impl.check_sequence("dx", given.dx);
  const ops::NamedTensor x{"x", given.x}, state{"state", given.state}, weight{"weight", given.weight};
  const ops::NamedTensor dy{"dy", given.dy}, dweight{"dweight", given.dweight}, dbias{"dbias", given.dbias};
  ops::require_no_overlap({"dx", given.dx}, {x, state, weight, dy, dweight, dbias});
  ops::require_no_overlap(dweight, {x, state, weight, dy, dbias});
  ops::require_no_overlap(dbias, {x, state, weight, dy});
  const std::array<void*, 7> operands{given.x.data,       given.state.data, given.weight.data, given.dy.data,
                                      given.dweight.data, given.dbias.data, given.dx.data};
  const Pool<ops::Executable>::Lease pass(impl.backward);
  const WithDenormals as_zeros(DenormalMode::zeros());
  pass->run(call, {operands.data(), given.workspace.data});
}

}  // namespace penstock
