// Programs of scans over memory of the caller's: what a call may give them, and that what it may not is refused by
// name.

#include "penstock/scan_program.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace penstock::test {
namespace {

constexpr Index rows = 2, channels = 5;

/// A call, and its memory.
class Calls {
 public:
  explicit Calls(const ScanCallForm& form, Algorithm algorithm = Algorithm::sequential)
      : steps_(form.steps), program_(ScanProgram::get(form, {.threads = 2, .algorithm = algorithm})) {
    Random random(3);
    for (std::vector<float>* const values : {&a, &b, &factor, &h, &dh, &da, &db, &dfactor}) {
      values->resize(static_cast<std::size_t>(rows * steps_ * channels));
      for (float& value : *values) value = static_cast<float>(random.uniform() - 0.5);
    }
    for (std::vector<float>* const values : {&h0, &hT, &dh0}) values->resize(rows * channels, 0.25F);
    workspace_.resize(program_->workspace_bytes() + 256);
  }

  Tensor sequence(std::vector<float>& values) const {
    return Tensor::contiguous(values.data(), DType::f32, {rows, steps_, channels});
  }
  static Tensor state(std::vector<float>& values) {
    return Tensor::contiguous(values.data(), DType::f32, {rows, channels});
  }
  Memory workspace() {
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace_.data());
    return {workspace_.data() + (256 - begin % 256) % 256, program_->workspace_bytes()};
  }
  ScanProgram::Terms terms() {
    return {sequence(a), sequence(b), program_->form().factor ? sequence(factor) : Tensor{}};
  }
  ScanProgram::Forward forward() {
    ScanProgram::Forward call;
    call.batch = {.rows = rows, .steps = steps_};
    call.terms = terms();
    call.h = sequence(h), call.h0 = state(h0), call.hT = state(hT);
    call.workspace = workspace();
    return call;
  }
  ScanProgram::Backward backward() {
    ScanProgram::Backward call;
    call.batch = {.rows = rows, .steps = steps_};
    call.terms = terms();
    call.h = sequence(h), call.dh = sequence(dh);
    call.dterms = {sequence(da), sequence(db), program_->form().factor ? sequence(dfactor) : Tensor{}};
    call.h0 = state(h0);
    call.workspace = workspace();
    return call;
  }
  Context context() const {
    Context context;
    context.execution = program_->execution();
    return context;
  }
  const ScanProgram& program() const { return *program_; }

  std::vector<float> a, b, factor, h, dh, da, db, dfactor, h0, hT, dh0;

 private:
  Index steps_;
  std::shared_ptr<const ScanProgram> program_;
  std::vector<std::byte> workspace_;
};

ScanCallForm form_of(Index steps) {
  ScanCallForm form;
  form.channels = channels, form.rows = rows, form.steps = steps;
  form.alignment = 4;
  return form;
}

TEST(ScanProgram, HMayTakeThePlaceOfATerm) {
  for (const Algorithm algorithm : {Algorithm::sequential, Algorithm::scan}) {
    for (const bool reverse : {false, true}) {
      ScanCallForm form = form_of(2500);
      form.form = ScanForm::logarithmic, form.factor = true, form.reverse = reverse;
      Calls apart(form, algorithm);
      apart.program().forward(apart.context(), apart.forward());
      for (std::vector<float> Calls::*const term : {&Calls::a, &Calls::b, &Calls::factor}) {
        Calls in_place(form, algorithm);
        ScanProgram::Forward call = in_place.forward();
        call.h = in_place.sequence(in_place.*term);
        in_place.program().forward(in_place.context(), call);
        EXPECT_TRUE(same_bits(in_place.*term, apart.h));
        EXPECT_TRUE(same_bits(in_place.hT, apart.hT));
      }
    }
  }
}

TEST(ScanProgram, RefusesCallsThatDoNotFit) {
  Calls calls(form_of(4));
  const auto refuses = [&](const char* what, auto damage) {
    ScanProgram::Forward call = calls.forward();
    damage(call);
    expect_error(ErrorCode::invalid_argument, what, [&] { calls.program().forward(calls.context(), call); });
  };
  refuses("terms.a must not be null", [](auto& call) { call.terms.a = {}; });
  refuses("terms.b must be f32, not f64", [](auto& call) { call.terms.b.dtype = DType::f64; });
  refuses("terms.b must be on cpu, not cuda:0", [](auto& call) { call.terms.b.device = Device::cuda(); });
  refuses("terms.factor must be null by the program's form", [](auto& call) { call.terms.factor = call.terms.a; });
  refuses("h must be [2, 4, 5], not [2, 4, 6]", [](auto& call) { call.h.shape[2] = 6; });
  refuses("h must have a step stride of at least its 5 channels, not 4", [](auto& call) { call.h.strides[1] = 4; });
  refuses("h must not overlap terms.b unless it takes its place",
          [](auto& call) { call.h.data = static_cast<float*>(call.terms.b.data) + channels; });
  refuses("h must not overlap h0", [](auto& call) { call.h0.data = static_cast<float*>(call.h.data) + channels; });
  refuses("hT must not overlap h0 unless it takes its place",
          [](auto& call) { call.hT.data = static_cast<float*>(call.h0.data) + 1; });
  refuses("hT must not overlap terms.b", [](auto& call) { call.hT.data = call.terms.b.data; });
  refuses("hT must not overlap h", [](auto& call) { call.hT.data = call.h.data; });
  refuses("h0 must be [2, 5], not [1, 5]", [](auto& call) { call.h0.shape[0] = 1; });
  refuses("hT must be on cpu, not cuda:1", [](auto& call) { call.hT.device = Device::cuda(1); });
  refuses("earlier_h0 belongs to corrections", [](auto& call) { call.earlier_h0 = call.h0; });
  refuses("batch must have the 2 rows", [](auto& call) { call.batch.rows = 3; });
  const Index lengths[] = {4, 4};
  refuses("batch.lengths must be null", [&](auto& call) { call.batch.lengths = lengths; });
  refuses("workspace must have at least", [](auto& call) { call.workspace.bytes = 8; });
  refuses("workspace must not be null", [](auto& call) { call.workspace = {}; });
  refuses("workspace must be aligned",
          [](auto& call) { call.workspace.data = static_cast<std::byte*>(call.workspace.data) + 64; });
  expect_error(ErrorCode::invalid_argument, "context.execution.device must be cpu, not cuda:1", [&] {
    Context elsewhere = calls.context();
    elsewhere.execution.device = Device::cuda(1);
    calls.program().forward(elsewhere, calls.forward());
  });
  expect_error(ErrorCode::invalid_argument, "a backward pass needs a program whose form is of training",
               [&] { calls.program().backward(calls.context(), calls.backward()); });
}

TEST(ScanProgram, RefusesBackwardCallsThatDoNotFit) {
  ScanCallForm form = form_of(4);
  form.flags.set(CallFlag::training);
  Calls calls(form);
  const auto refuses = [&](const char* what, auto damage) {
    ScanProgram::Backward call = calls.backward();
    damage(call);
    expect_error(ErrorCode::invalid_argument, what, [&] { calls.program().backward(calls.context(), call); });
  };
  calls.program().backward(calls.context(), calls.backward());
  refuses("dh must not be null", [](auto& call) { call.dh = {}; });
  refuses("h must be on cpu, not cuda:0", [](auto& call) { call.h.device = Device::cuda(); });
  refuses("dterms.a must not be null", [](auto& call) { call.dterms.a = {}; });
  refuses("dterms.b must have a row stride", [](auto& call) { call.dterms.b.strides[0] = 0; });
  refuses("dterms.factor must be null", [](auto& call) { call.dterms.factor = call.dterms.a; });
  refuses("workspace must have at least", [](auto& call) { call.workspace.bytes = 8; });
}

/// The backward pass reads what it must not have overwritten: every gradient over every input and every other gradient.
TEST(ScanProgram, RefusesGradientsThatOverlap) {
  ScanCallForm form = form_of(4);
  form.form = ScanForm::logarithmic, form.factor = true, form.flags.set(CallFlag::training);
  Calls calls(form);
  using Argument = std::pair<const char*, Tensor ScanProgram::Backward::*>;
  using Term = std::pair<const char*, Tensor ScanProgram::Terms::*>;
  const Term terms[] = {
      {"a", &ScanProgram::Terms::a}, {"b", &ScanProgram::Terms::b}, {"factor", &ScanProgram::Terms::factor}};
  const Argument read[] = {{"h", &ScanProgram::Backward::h},
                           {"dh", &ScanProgram::Backward::dh},
                           {"h0", &ScanProgram::Backward::h0},
                           {"dhT", &ScanProgram::Backward::dhT}};
  // As long as a sequence: a gradient that begins in a state ends in it too, whatever lies behind.
  for (std::vector<float>* const values : {&calls.h0, &calls.hT, &calls.dh0}) values->resize(2 * calls.h.size());
  const auto refuses = [&](const std::string& what, const std::string& over, auto damage) {
    ScanProgram::Backward call = calls.backward();
    call.dhT = Calls::state(calls.hT), call.dh0 = Calls::state(calls.dh0);
    calls.program().backward(calls.context(), call);
    damage(call);
    expect_error(ErrorCode::invalid_argument, what + " must not overlap " + over,
                 [&] { calls.program().backward(calls.context(), call); });
  };
  const auto beside = [](const Tensor& tensor) { return static_cast<float*>(tensor.data) + 1; };
  for (const auto& [name, gradient] : terms) {
    const std::string written = std::string("dterms.") + name;
    for (const auto& [other, term] : terms) {
      refuses(written, std::string("terms.") + other, [&](auto& call) { call.dterms.*gradient = call.terms.*term; });
    }
    for (const auto& [other, argument] : read) {
      refuses(written, other, [&](auto& call) { (call.dterms.*gradient).data = beside(call.*argument); });
    }
    refuses("dh0", written, [&](auto& call) { call.dh0.data = beside(call.dterms.*gradient); });
    refuses("dh0", std::string("terms.") + name, [&](auto& call) { call.dh0.data = beside(call.terms.*gradient); });
  }
  refuses("dterms.b", "dterms.a", [&](auto& call) { call.dterms.b = call.dterms.a; });
  refuses("dterms.factor", "dterms.a", [&](auto& call) { call.dterms.factor.data = beside(call.dterms.a); });
  refuses("dterms.factor", "dterms.b", [&](auto& call) { call.dterms.factor = call.dterms.b; });
  for (const auto& [other, argument] : read) {
    refuses("dh0", other, [&](auto& call) { call.dh0.data = beside(call.*argument); });
  }
  refuses("dh0", "h0", [&](auto& call) { call.dh0 = call.h0; });
}

/// Columns of one wide tensor interleave without touching each other, and dh0 may take the place of dhT.
TEST(ScanProgram, TakesGradientsSideBySide) {
  ScanCallForm form = form_of(4);
  form.flags.set(CallFlag::training);
  Calls apart(form), together(form);
  ScanProgram::Backward call = apart.backward();
  call.dhT = Calls::state(apart.hT), call.dh0 = Calls::state(apart.dh0);
  apart.program().backward(apart.context(), call);
  constexpr Index width = 2 * channels;
  std::vector<float> wide(static_cast<std::size_t>(rows * form.steps * width));
  ScanProgram::Backward side_by_side = together.backward();
  for (Tensor* const gradient : {&side_by_side.dterms.a, &side_by_side.dterms.b}) {
    gradient->data = wide.data() + (gradient == &side_by_side.dterms.a ? 0 : channels);
    gradient->strides = {form.steps * width, width, 1};
  }
  side_by_side.dhT = side_by_side.dh0 = Calls::state(together.hT);
  together.program().backward(together.context(), side_by_side);
  EXPECT_TRUE(same_bits(together.hT, apart.dh0));
  for (std::size_t i = 0; i < apart.da.size(); ++i) {
    const std::size_t position = i / channels, channel = i % channels;
    EXPECT_EQ(wide[position * width + channel], apart.da[i]);
    EXPECT_EQ(wide[position * width + channels + channel], apart.db[i]);
  }
}

TEST(ScanProgram, RefusesImpossibleForms) {
  const auto refuses = [](ErrorCode code, const char* what, auto damage) {
    ScanCallForm form = form_of(4);
    Execution execution;
    damage(form, execution);
    expect_error(code, what, [&] { ScanProgram::get(form, execution); });
  };
  constexpr auto invalid = ErrorCode::invalid_argument, unsupported = ErrorCode::unsupported;
  refuses(invalid, "channels must be 1 to", [](auto& form, auto&) { form.channels = 0; });
  refuses(invalid, "rows must be 1 to", [](auto& form, auto&) { form.rows = -1; });
  refuses(invalid, "steps must be 1 to", [](auto& form, auto&) { form.steps = 0; });
  refuses(invalid, "positions must be 0 to 8", [](auto& form, auto&) { form.positions = 9; });
  refuses(invalid, "terms.factor belongs to the logarithmic form", [](auto& form, auto&) { form.factor = true; });
  refuses(invalid, "alignment must be 4, a power of two, to 16, not 3", [](auto& form, auto&) { form.alignment = 3; });
  refuses(invalid, "form must be", [](auto& form, auto&) { form.form = static_cast<ScanForm>(9); });
  refuses(unsupported, "dtype must be f32 or f64 on cpu, not bf16",
          [](auto& form, auto&) { form.dtype = DType::bf16; });
  refuses(unsupported, "precision must be full for a scan",
          [](auto&, auto& execution) { execution.precision = Precision::bf16; });
}

}  // namespace
}  // namespace penstock::test
