// Programs of scans, as the public interface shows them.

#include "penstock/scan_program.h"

#include <algorithm>
#include <tuple>

#include "backend/cpu/instruction_sets.h"
#include "base/alive.h"
#include "base/check.h"
#include "base/denormals.h"
#include "base/pool.h"
#include "base/shared_cache.h"
#include "base/threads.h"
#include "ops/program_check.h"
#include "ops/scan/explicit_scan.h"
#include "ops/tensor_check.h"

namespace penstock {

namespace ops {

/// Each step is read before it is written, so that h may take the place of a term; but no part of another step's.
void require_apart(const ScanProgram::Forward& given) {
  const NamedTensor a{"terms.a", given.terms.a}, b{"terms.b", given.terms.b},
      factor{"terms.factor", given.terms.factor};
  const NamedTensor h{"h", given.h}, h0{"h0", given.h0}, hT{"hT", given.hT}, earlier{"earlier_h0", given.earlier_h0};
  for (const NamedTensor& term : {a, b, factor}) require_in_place_or_apart(h, term);
  require_no_overlap(h, {h0, earlier});
  require_in_place_or_apart(hT, h0);
  require_no_overlap(hT, {a, b, factor, h, earlier});
}

/// The backward pass reads neighbouring steps, in chunks that run side by side: no gradient may take any place.
void require_apart(const ScanProgram::Backward& given) {
  const NamedTensor a{"terms.a", given.terms.a}, b{"terms.b", given.terms.b},
      factor{"terms.factor", given.terms.factor};
  const NamedTensor h{"h", given.h}, dh{"dh", given.dh}, h0{"h0", given.h0}, dhT{"dhT", given.dhT};
  const NamedTensor da{"dterms.a", given.dterms.a}, db{"dterms.b", given.dterms.b};
  const NamedTensor dfactor{"dterms.factor", given.dterms.factor}, dh0{"dh0", given.dh0};
  const NamedTensor earlier{"earlier_dhT", given.earlier_dhT};
  for (const NamedTensor& gradient : {da, db, dfactor}) {
    require_no_overlap(gradient, {a, b, factor, h, dh, h0, dhT, earlier});
  }
  require_no_overlap(db, {da});
  require_no_overlap(dfactor, {da, db});
  require_in_place_or_apart(dh0, dhT);
  require_no_overlap(dh0, {a, b, factor, h, dh, h0, earlier, da, db, dfactor});
}

}  // namespace ops

struct ScanProgram::Impl {
  ScanCallForm form;
  Execution execution;
  ops::Target target;
  std::size_t bytes = 0;
  mutable Pool<ops::ScanPass> forward, backward;

  Impl(const ScanCallForm& f, const Execution& e)
      : form(f),
        execution(e),
        target(ops::target_of_form(f, e)),
        forward([this] { return ops::prepare_scan(form, target, false); }),
        backward([this] { return ops::prepare_scan(form, target, true); }) {
    const Pool<ops::ScanPass>::Lease there(forward);
    bytes = there->workspace_bytes();
    if (!form.has(CallFlag::training)) return;
    const Pool<ops::ScanPass>::Lease back(backward);
    bytes = std::max(bytes, back->workspace_bytes());
  }

  void check_sequence(const char* name, const Tensor& tensor) const {
    const auto alignment = static_cast<std::size_t>(execution.device.is_cuda() ? form.alignment : 1);
    ops::require_tensor(name, tensor, form.dtype, execution.device, std::max(alignment, size_of(form.dtype)));
    ops::require_sequence(name, tensor, {form.rows, form.steps, form.positions}, form.channels);
  }

  void check_terms(const std::array<const char*, 3>& names, const Terms& of) const {
    require(static_cast<bool>(of.factor) == form.factor, "{} must be {} by the program's form", names[2],
            form.factor ? "there" : "null");
    check_sequence(names[0], of.a);
    check_sequence(names[1], of.b);
    if (form.factor) check_sequence(names[2], of.factor);
  }

  void check_earlier(const char* name, const Tensor& given) const {
    require(form.correction || !given, "{} belongs to corrections; the program's form is none", name);
    check_state(name, given);
  }

  void check_state(const char* name, const Tensor& state) const {
    if (!state) return;
    const DType type = form.dtype == DType::f64 ? DType::f64 : DType::f32;
    ops::require_tensor(name, state, type, execution.device, size_of(type));
    ops::require_gapless(name, state, {form.rows, form.channels});
  }

  ops::Call call(const Context& context, const Batch& batch, const Memory& workspace) const {
    ops::require_device(context, execution.device);
    ops::require_batch(batch, {form.rows, form.steps, form.positions}, form.has(CallFlag::lengths),
                       form.has(CallFlag::reset), execution.device);
    ops::require_memory("workspace", workspace, bytes);
    ops::Call call;
    call.batch = batch;
    call.threads = execution.threads;
    call.stream = context.stream;
    return call;
  }
};

ScanProgram::ScanProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ScanProgram::~ScanProgram() = default;

ScanProgram::Impl& ScanProgram::held() const { return alive(impl_, "the program"); }

std::shared_ptr<const ScanProgram> ScanProgram::get(const ScanCallForm& form, const Execution& execution) {
  using Key = std::tuple<ScanCallForm, Execution, unsigned>;  // with the number of the instruction set
  static SharedCache<Key, const ScanProgram> recent(ops::kept_programs);
  Execution whole = execution;
  whole.threads = execution.device.is_cuda() ? 1 : resolve_threads(execution.threads);
  return recent.get({form, whole, cpu::isa_generation()}, [&] {
    ops::check_dtype(form.dtype, whole.device);
    ops::check_extent({form.rows, form.steps, form.positions}, form.has(CallFlag::lengths));
    ops::check_alignment(form.alignment, form.dtype);
    // The constructor is private. NOLINTNEXTLINE(modernize-make-shared)
    return std::shared_ptr<const ScanProgram>(new ScanProgram(std::make_unique<Impl>(form, whole)));
  });
}

const ScanCallForm& ScanProgram::form() const { return held().form; }
const Execution& ScanProgram::execution() const { return held().execution; }
std::size_t ScanProgram::workspace_bytes() const { return held().bytes; }

std::string ScanProgram::explain() const {
  const Pool<ops::ScanPass>::Lease there(held().forward);
  std::string lines = "forward: " + there->explain();
  if (!held().form.has(CallFlag::training)) return lines;
  const Pool<ops::ScanPass>::Lease back(held().backward);
  return lines + "\nbackward: " + back->explain();
}

void ScanProgram::forward(const Context& context, const Forward& given) const {
  const Impl& impl = held();
  const ops::Call call = impl.call(context, given.batch, given.workspace);
  impl.check_terms({"terms.a", "terms.b", "terms.factor"}, given.terms);
  impl.check_sequence("h", given.h);
  impl.check_state("h0", given.h0);
  impl.check_state("hT", given.hT);
  impl.check_earlier("earlier_h0", given.earlier_h0);
  ops::require_apart(given);
  const Pool<ops::ScanPass>::Lease pass(impl.forward);
  const WithDenormals as_zeros(DenormalMode::zeros());
  pass->forward(call, given);
}

void ScanProgram::backward(const Context& context, const Backward& given) const {
  const Impl& impl = held();
  require(impl.form.has(CallFlag::training), "a backward pass needs a program whose form is of training");
  const ops::Call call = impl.call(context, given.batch, given.workspace);
  impl.check_terms({"terms.a", "terms.b", "terms.factor"}, given.terms);
  impl.check_sequence("h", given.h);
  impl.check_sequence("dh", given.dh);
  impl.check_terms({"dterms.a", "dterms.b", "dterms.factor"}, given.dterms);
  impl.check_state("h0", given.h0);
  impl.check_state("dhT", given.dhT);
  impl.check_state("dh0", given.dh0);
  impl.check_earlier("earlier_dhT", given.earlier_dhT);
  ops::require_apart(given);
  const Pool<ops::ScanPass>::Lease pass(impl.backward);
  const WithDenormals as_zeros(DenormalMode::zeros());
  pass->backward(call, given);
}

}  // namespace penstock
