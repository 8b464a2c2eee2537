// Plans that were measured: what is written down is found again, holds for its machine and version alone, and decides.

#include "plan/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "penstock/error.h"
#include "penstock/version.h"
#include "plan/gpu/dense.h"
#include "plan/gpu/product.h"
#include "plan/gpu/scan_layer.h"
#include "plan/plan.h"
#include "support/temporary_folder.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

GpuDenseProblem elman_768() {
  GpuDenseProblem problem;
  problem.cell = "elman";
  problem.rows = 16, problem.steps = 1024, problem.hidden = 768;
  return problem;
}

GpuLayerProblem mingru_layer() {
  GpuLayerProblem problem;
  problem.scan = {.storage = Storage::bf16, .rows = 64, .steps = 128, .channels = 100};
  problem.scan.computed = true, problem.scan.read_back = 2, problem.scan.alignment = 4;
  problem.input = 100;
  return problem;
}

std::string message_of(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

std::string plans_text(const std::string& identity, const std::string& work, const PlanChoice& choice) {
  return add_to_tuning("", identity, {{work, {.choice = choice, .microseconds = 12.5}}});
}

/// Each candidate on trial gives the plan that its text describes.
template <class Problem, class Machine, class Make>
void expect_trials(const Problem& problem, const Machine& machine, std::size_t at_least, const Make& make) {
  const std::vector<Candidate> all = candidates(problem, machine, 3);
  EXPECT_GE(all.size(), at_least) << work_of(problem);
  const auto without_reason = [](const std::string& text, const std::string& why) {
    return text.substr(0, text.size() - why.size());
  };
  for (const Candidate& candidate : all) {
    const Trial trial(work_of(problem), candidate.choice);
    const auto plan = make(problem, machine);
    EXPECT_EQ(plan.why, "on trial");
    EXPECT_THAT(candidate.text, testing::StartsWith(without_reason(plan.explain(), plan.why)));
  }
  const auto ranked = make(problem, machine);
  const Trial none(work_of(problem), std::nullopt);
  EXPECT_EQ(make(problem, machine).explain(), ranked.explain());
}

TEST(Tuning, TriesEveryAlgorithm) {
  const GpuModel gpu = named_gpu("h200");
  expect_trials(elman_768(), gpu, 3, plan_gpu_dense);
  GpuDenseProblem small = elman_768();
  small.heads = 12, small.backward = true;
  expect_trials(small, gpu, 4, plan_gpu_dense);
  expect_trials(mingru_layer(), gpu, 3, plan_gpu_layer);
  expect_trials(mingru_layer().scan, gpu, 2, plan_gpu_scan);
  expect_trials(GpuProductProblem{.m = 4096, .n = 512, .k = 256}, gpu, 2, plan_gpu_product);
  Problem problem;
  problem.cell = &cell_traits("lstm"), problem.rows = 2, problem.steps = 100, problem.hidden = 64, problem.threads = 2;
  expect_trials(problem, CpuModel{}, 3, make_plan);
  problem.cell = &cell_traits("mingru"), problem.steps = 4096;
  expect_trials(problem, CpuModel{}, 3, make_plan);
}

TEST(Tuning, CandidatesDifferInMoreThanADetail) {
  for (const Candidate& candidate : candidates(elman_768(), named_gpu("h200"), 4)) {
    const auto same = [&](const Candidate& other) {
      if (other.choice.rule != candidate.choice.rule) return false;
      for (std::size_t i = 0; i < candidate.choice.variables.size(); ++i) {
        const auto& [name, value] = candidate.choice.variables[i];
        if (name != "stages" && other.choice.variables[i].second != value) return false;
      }
      return true;
    };
    EXPECT_EQ(std::ranges::count_if(candidates(elman_768(), named_gpu("h200"), 4), same), 1) << candidate.text;
  }
}

TEST(Tuning, WhatWasMeasuredDecides) {
  GpuModel gpu = named_gpu("h200");
  const std::string work = work_of(elman_768()), identity = identity_of(gpu);
  const GpuDensePlan planned = plan_gpu_dense(elman_768(), gpu);
  ASSERT_EQ(planned.algorithm, DenseAlgorithm::cluster);
  const auto all = candidates(elman_768(), gpu, 1);
  const auto chip = std::ranges::find(all, "chip", [](const Candidate& c) { return c.choice.rule; });
  ASSERT_NE(chip, all.end());
  gpu.tuned = std::make_shared<const Tuning>(read_tuning(plans_text(identity, work, chip->choice), "p.json", identity));
  const GpuDensePlan tuned = plan_gpu_dense(elman_768(), gpu);
  EXPECT_EQ(tuned.algorithm, DenseAlgorithm::chip);
  EXPECT_EQ(tuned.why, "the fastest plan that was measured (p.json)");
  GpuDenseProblem longer = elman_768(), other = elman_768();
  longer.steps = 77;  // the same work at any length
  EXPECT_EQ(plan_gpu_dense(longer, gpu).algorithm, DenseAlgorithm::chip);
  other.rows = 17;
  EXPECT_EQ(plan_gpu_dense(other, gpu).algorithm, DenseAlgorithm::cluster);
  other = elman_768(), other.algorithm = DenseAlgorithm::step;  // what a caller asks for comes first
  EXPECT_EQ(plan_gpu_dense(other, gpu).algorithm, DenseAlgorithm::step);
}

TEST(Tuning, AChoiceThatIsNoPlanAnyMoreIsReplacedAndSaidSo) {
  GpuModel gpu = named_gpu("h200");
  const std::string work = work_of(elman_768()), identity = identity_of(gpu);
  for (PlanChoice choice :
       {PlanChoice{.rule = "cluster", .variables = {{"cluster", 5}}}, PlanChoice{.rule = "gone", .variables = {}}}) {
    gpu.tuned = std::make_shared<const Tuning>(read_tuning(plans_text(identity, work, choice), "p.json", identity));
    const GpuDensePlan plan = plan_gpu_dense(elman_768(), gpu);
    EXPECT_EQ(plan.algorithm, DenseAlgorithm::cluster);
    EXPECT_THAT(plan.why, HasSubstr("what was measured (p.json) is none of the plans that are possible here"));
  }
}

TEST(Tuning, FilesOfOthersAreRefusedWithTheReason) {
  const std::string text = plans_text("chip A", "work", {.rule = "head", .variables = {{"slots", 2}}});
  EXPECT_EQ(read_tuning(text, "f", "chip A").plans.at("work").microseconds, 12.5);
  EXPECT_THAT(message_of(ErrorCode::incompatible, [&] { read_tuning(text, "f", "chip B"); }),
              HasSubstr("f: its plans were measured on \"chip A\", and this is 'chip B'"));
  std::string older = text;
  older.replace(older.find(PENSTOCK_VERSION), std::string(PENSTOCK_VERSION).size(), "0.0.7");
  EXPECT_THAT(message_of(ErrorCode::incompatible, [&] { read_tuning(older, "f", "chip A"); }),
              HasSubstr("measured with Penstock \"0.0.7\", and this is " PENSTOCK_VERSION));
}

TEST(Tuning, FilesThatAreWrongAreNamedWithWhatIsWrong) {
  const auto wrong = [](const std::string& text) {
    return message_of(ErrorCode::bad_input, [&] { read_tuning(text, "f", "chip"); });
  };
  EXPECT_THAT(wrong("[1]"), HasSubstr("f: plans must be one JSON object"));
  EXPECT_THAT(wrong("{\"format\": \"x\"}"), HasSubstr("this is not a file of plans"));
  EXPECT_THAT(wrong("{\"format\": \"penstock plans\"}"), HasSubstr("there is no 'machines'"));
  const std::string text = plans_text("chip", "work", {.rule = "head", .variables = {{"slots", 2}}});
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_THAT(wrong(replaced("\"slots\": 2", "\"slots\": 2.5")), HasSubstr("\"slots\" must be a whole number"));
  EXPECT_THAT(wrong(replaced("12.5", "-1")), HasSubstr("'microseconds' must be a positive number"));
  EXPECT_THAT(wrong(replaced("\"head\"", "7")), HasSubstr("'rule' must be a text"));
}

TEST(Tuning, FilesGrowByMachineAndWork) {
  const PlanChoice choice{.rule = "head", .variables = {{"slots", 2}}};
  std::string text = plans_text("A", "one", choice);
  text = add_to_tuning(text, "A", {{"two", {.choice = choice, .microseconds = 1}}});
  text = add_to_tuning(text, "B", {{"one", {.choice = choice, .microseconds = 3}}});
  EXPECT_EQ(read_tuning(text, "f", "A").plans.size(), 2u);
  EXPECT_EQ(read_tuning(text, "f", "B").plans.at("one").microseconds, 3);
  text = add_to_tuning(text, "A", {{"one", {.choice = {}, .microseconds = 2}}});  // the planner's own
  EXPECT_EQ(read_tuning(text, "f", "A").plans.count("one"), 0u);
  EXPECT_EQ(read_tuning(text, "f", "A").plans.count("two"), 1u);
}

TEST(Tuning, RecordsWhatIsAskedForAndNotWhatThePlannerAsksItself) {
  const GpuModel gpu = named_gpu("h200");
  GpuLayerProblem floats = mingru_layer();
  floats.scan.storage = Storage::f32;  // its estimate asks for the plan of a product
  PlansAskedFor recording;
  plan_gpu_layer(floats, gpu);
  plan_gpu_layer(floats, gpu);
  plan_gpu_dense(elman_768(), gpu);
  const std::vector<AskedPlan> asked = recording.take();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].work, work_of(floats));
  EXPECT_EQ(asked[1].work, work_of(elman_768()));
  EXPECT_GT(asked[1].microseconds, 0);
}

/// A file of plans may hold costs of machines, which take the place of those built in.
TEST(Tuning, CostsOfAMachineAreReadAndStay) {
  GpuModel gpu = named_gpu("h200");
  const std::string identity = identity_of(gpu), costs = R"({"host_copy": 7.5, "branch_chunk": 20})";
  std::string text = plans_text(identity, "work", {.rule = "rule", .variables = {{"x", 1}}});
  const auto end = text.rfind('}');
  text.insert(end, ", \"costs\": {\"" + identity + "\": " + costs + ", \"chip B\": {\"launch\": 2}}");
  EXPECT_EQ(read_tuning(text, "f", identity).plans.size(), 1U);
  EXPECT_EQ(read_tuning(text, "f", "chip B").costs, R"({"launch":2})") << "costs without a plan";
  EXPECT_THAT(message_of(ErrorCode::incompatible, [&] { read_tuning(text, "f", "chip C"); }),
              HasSubstr("this is 'chip C'"));
  text = add_to_tuning(text, identity, {{"other", {.choice = {.rule = "rule", .variables = {}}, .microseconds = 1}}});
  EXPECT_EQ(read_tuning(text, "f", identity).plans.size(), 2U);
  read_costs(read_tuning(text, "f", identity).costs, gpu.costs);
  EXPECT_EQ(gpu.costs.host.copy, 7.5);
  EXPECT_EQ(gpu.costs.wavefront.chunk, 20);
  EXPECT_EQ(gpu.costs.common.launch, GpuCosts{}.common.launch) << "what is not named stays";
  EXPECT_THAT(message_of(ErrorCode::bad_input,
                         [&] {
                           read_tuning(R"({"format": "penstock plans", "version": ")" PENSTOCK_VERSION
                                       R"(", "machines": {}, "costs": 3})",
                                       "f", "chip");
                         }),
              HasSubstr("f: 'costs' must be an object"));
}

/// The costs of the file that PENSTOCK_PLANS names apply to the machine of this process. Each identity is loaded once.
TEST(Tuning, AMachineTakesItsCosts) {
  const test::TemporaryFolder folder;
  CpuModel cpu{.name = "a CPU of this test", .isa = "none", .cores = 3}, wrong = cpu;
  wrong.name = "another CPU";
  const std::string file = folder.write("plans.json", R"({"format": "penstock plans", "version": ")" PENSTOCK_VERSION
                                                      R"(", "machines": {}, "costs": {")" +
                                                          identity_of(cpu) + R"(": {"sharing": 0.75}, ")" +
                                                          identity_of(wrong) + R"(": {"sharing": -1}}})");
  ::setenv("PENSTOCK_PLANS", file.c_str(), 1);
  take_tuning(cpu);
  EXPECT_EQ(cpu.costs.sharing, 0.75);
  take_tuning(wrong);
  EXPECT_EQ(wrong.costs, CpuCosts{}) << "a cost that is wrong is none";
  ::unsetenv("PENSTOCK_PLANS");
}

/// The content of the file in the folder of compiled kernels, or why it is not read.
std::string usual_plans() {
  std::string problem;
  const std::string text = text_of_plan_file(problem);
  EXPECT_TRUE(text.empty() || problem.empty());
  return problem.empty() ? text : problem;
}

TEST(Tuning, TrustsNoPlansThatOthersCanWrite) {
  const test::TemporaryFolder folder;
  ::setenv("PENSTOCK_CACHE_DIR", folder.folder().c_str(), 1);
  EXPECT_EQ(usual_plans(), "");
  const std::string file = folder.write("plans.json", "plans");
  EXPECT_EQ(usual_plans(), "plans");
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  EXPECT_THAT(usual_plans(), HasSubstr("others may write to it (mode 0666): chmod go-w"));
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(folder.folder().c_str(), 0777), 0);
  EXPECT_THAT(usual_plans(), HasSubstr("of its folder: others may write to it (mode 0777)"));
  ASSERT_EQ(::chmod(folder.folder().c_str(), 0700), 0);
  std::filesystem::rename(file, folder.path("elsewhere.json"));
  std::filesystem::create_symlink("elsewhere.json", file);
  EXPECT_EQ(usual_plans(), "plans");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
    EXPECT_EQ(usual_plans(), "it belongs to another user (number 65534)");
    ::setenv("PENSTOCK_PLANS", file.c_str(), 1);
    EXPECT_EQ(usual_plans(), "plans") << "the user named it";
    ::unsetenv("PENSTOCK_PLANS");
  }
  ::unsetenv("PENSTOCK_CACHE_DIR");
}

TEST(Tuning, SaysWhatIsNoFileOfPlans) {
  ::setenv("PENSTOCK_PLANS", "/etc", 1);
  EXPECT_EQ(usual_plans(), "it is a folder, not a file");
  testing::internal::CaptureStderr();
  EXPECT_EQ(load_tuning("a machine of this test alone"), nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("PENSTOCK_PLANS: /etc: it is a folder, not a file; plans are made by estimates"));
  ::unsetenv("PENSTOCK_PLANS");
}

}  // namespace
}  // namespace penstock::plan
