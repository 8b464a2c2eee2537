#include "plan/tuning.h"

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/environment.h"
#include "base/files/cache_folder.h"
#include "base/files/trusted_file.h"
#include "base/quote.h"
#include "base/warning.h"
#include "penstock/version.h"
#include "plan/cpu/rules.h"
#include "plan/gpu/dense_rules.h"
#include "plan/gpu/product_rules.h"
#include "plan/gpu/scan_layer_rules.h"
#include "plan/gpu/scan_rules.h"

namespace penstock::plan {
namespace {

using PlansJson = nlohmann::ordered_json;

constexpr const char* kPlansFormat = "penstock plans";

using Trials = std::map<std::string, std::optional<PlanChoice>, std::less<>>;

Trials& trials() {
  thread_local Trials all;
  return all;
}

PlansAskedFor*& current_recording() {
  thread_local PlansAskedFor* current = nullptr;
  return current;
}

/// Returns "forward ragged reset", without the words that do not apply.
std::string form_of(bool backward, bool lengths, bool reset) {
  return fmt::format("{}{}{}", backward ? "backward" : "forward", lengths ? " lengths" : "", reset ? " reset" : "");
}

[[noreturn]] void fail_plans(const std::string& file, const std::string& what) {
  fail(ErrorCode::bad_input, "{}: {}", file, what);
}

const PlansJson& member(const PlansJson& object, const char* name, const std::string& file) {
  if (!object.is_object() || !object.contains(name)) fail_plans(file, fmt::format("there is no '{}'", name));
  return object[name];
}

std::string text_member(const PlansJson& object, const char* name, const std::string& file) {
  const PlansJson& value = member(object, name, file);
  if (!value.is_string()) fail_plans(file, fmt::format("'{}' must be a text", name));
  return value.get<std::string>();
}

PlansJson parsed_plans(const std::string& text, const std::string& file) {
  PlansJson json = PlansJson::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail_plans(file, "plans must be one JSON object");
  if (text_member(json, "format", file) != kPlansFormat) fail_plans(file, "this is not a file of plans");
  if (!member(json, "machines", file).is_object()) fail_plans(file, "'machines' must be an object");
  return json;
}

TunedPlan parsed_plan(const PlansJson& json, const std::string& file) {
  TunedPlan tuned;
  tuned.choice.rule = text_member(json, "rule", file);
  const PlansJson& variables = member(json, "variables", file);
  if (!variables.is_object()) fail_plans(file, "'variables' must be an object");
  for (const auto& item : variables.items()) {
    if (!item.value().is_number_integer()) {
      fail_plans(file, fmt::format("{} must be a whole number", in_quotes(item.key())));
    }
    tuned.choice.variables.emplace_back(item.key(), item.value().get<csp::Integer>());
  }
  const PlansJson& time = member(json, "microseconds", file);
  if (!time.is_number() || !(time.get<double>() > 0)) fail_plans(file, "'microseconds' must be a positive number");
  tuned.microseconds = time.get<double>();
  return tuned;
}

/// The name of a cell. A program may give a name to other equations than the program that tuned did; their plans need
/// not fit each other.
std::string key_of(const CellTraits& cell) {
  if (cell.custom == nullptr) return std::string(cell.info.name);
  return fmt::format("{} G={} S={}{}", cell.info.name, cell.gates(), cell.states(),
                     cell.split_gradients ? " split" : "");
}

}  // namespace

std::string work_of(const Problem& problem) {
  const CellInfo& cell = problem.cell->info;
  std::string work = fmt::format("{} B={} H={} heads={} threads={}", key_of(*problem.cell), problem.rows,
                                 problem.hidden, problem.heads, problem.threads);
  if (cell.scan) work += fmt::format(" T={}", problem.steps);
  return work + (problem.int8 ? " int8" : "") + (problem.exact ? " exact" : "");
}

std::string work_of(const GpuDenseProblem& problem) {
  return fmt::format("{} {} B={} H={} heads={} {}", key_of(cell_traits(problem.cell)),
                     problem.tf32 ? "tf32" : to_string(problem.storage), problem.rows, problem.hidden, problem.heads,
                     form_of(problem.backward, problem.ragged, problem.reset)) +
         (problem.restarts ? " restarts" : "");
}

std::string work_of(const GpuScanProblem& problem) {
  return fmt::format("scan {} B={} T={} C={} gates={} reads={}{}{} {} aligned={}", to_string(problem.storage),
                     problem.rows, problem.steps, problem.channels, problem.gates, problem.read_back,
                     problem.logarithms ? " of logarithms"
                     : problem.computed ? " computed"
                                        : "",
                     problem.learnt > 0 ? fmt::format(" learnt={}", problem.learnt) : "",
                     form_of(problem.backward, problem.lengths, problem.reset), problem.alignment) +
         (problem.restarts ? " restarts" : "");
}

std::string work_of(const GpuLayerProblem& problem) {
  return fmt::format("layer of {} I={} aligned {}{}{}", work_of(problem.scan), problem.input, problem.input_alignment,
                     problem.keep_gates ? " keeps gates" : "", problem.tf32 ? " tf32" : "");
}

std::string work_of(const GpuProductProblem& problem) {
  return fmt::format("product {}x{}x{}{}{}{}{}", problem.m, problem.n, problem.k, problem.a_transposed ? " A^T" : "",
                     problem.b_transposed ? " B^T" : "", problem.one_split ? " whole" : "",
                     problem.exact ? " exact" : "");
}

std::string identity_of(const GpuModel& gpu) {
  return fmt::format("{}, sm_{}, {} multiprocessors, driver {}.{}", gpu.name, gpu.architecture(), gpu.multiprocessors,
                     gpu.driver / 1000, gpu.driver % 1000 / 10);
}

std::string identity_of(const CpuModel& cpu) {
  return fmt::format("{}, {}, {} cores", cpu.name.empty() ? "CPU" : cpu.name, cpu.isa, cpu.cores);
}

std::string plan_file() {
  if (const char* chosen = environment("PENSTOCK_PLANS")) return chosen;
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/plans.json";
}

std::string text_of_plan_file(std::string& problem) {
  problem.clear();
  std::string file = plan_file();
  if (file.empty()) return "";
  if (environment("PENSTOCK_PLANS") != nullptr) return read_trusted(file, Trust::anyone, problem).value_or("");
  std::error_code missing;
  const std::filesystem::path behind_links = std::filesystem::canonical(file, missing);
  if (missing) return "";
  // A link belongs to the user if nobody else can write to its folder.
  for (const std::string& folder : {cache_folder(), behind_links.parent_path().string()}) {
    if (problem = who_else_writes(folder); !problem.empty()) {
      problem = fmt::format("of its folder: {}", problem);
      return "";
    }
  }
  file = behind_links.string();
  return read_trusted(file, Trust::owner, problem).value_or("");
}

void check_plan_file(const std::string& text, const std::string& file) { parsed_plans(text, file); }

Tuning read_tuning(const std::string& text, const std::string& file, const std::string& identity) {
  const PlansJson json = parsed_plans(text, file);
  const std::string version = text_member(json, "version", file);
  if (version != PENSTOCK_VERSION) {
    fail(ErrorCode::incompatible, "{}: its plans were measured with Penstock {}, and this is {}", file,
         in_quotes(version), PENSTOCK_VERSION);
  }
  Tuning tuning{.file = file, .plans = {}};
  if (const auto costs = json.find("costs"); costs != json.end()) {
    if (!costs->is_object()) fail_plans(file, "'costs' must be an object");
    if (costs->contains(identity)) tuning.costs = (*costs)[identity].dump();
  }
  const PlansJson& machines = json["machines"];
  if (!machines.contains(identity)) {
    if (!tuning.costs.empty()) return tuning;
    std::string others;
    for (const auto& item : machines.items()) others += (others.empty() ? "" : "; ") + in_quotes(item.key());
    fail(ErrorCode::incompatible, "{}: its plans were measured on {}, and this is '{}'", file,
         others.empty() ? "nothing" : others, identity);
  }
  const PlansJson& works = machines[identity];
  if (!works.is_object()) fail_plans(file, "the plans of a machine must be an object");
  for (const auto& item : works.items()) tuning.plans[item.key()] = parsed_plan(item.value(), file);
  return tuning;
}

std::shared_ptr<const Tuning> load_tuning(const std::string& identity) {
  static std::mutex guard;
  static std::map<std::string, std::shared_ptr<const Tuning>> loaded;
  const std::lock_guard lock(guard);
  const auto [entry, is_new] = loaded.try_emplace(identity);
  if (!is_new) return entry->second;
  const std::string file = plan_file();
  const bool asked_for = environment("PENSTOCK_PLANS") != nullptr && !file.empty();
  std::string problem;
  const std::string text = text_of_plan_file(problem);
  if (asked_for && text.empty() && problem.empty()) problem = "there is nothing to read";
  if (!problem.empty()) {
    warn("{}{}: {}; plans are made by estimates", asked_for ? "PENSTOCK_PLANS: " : "", file, problem);
  }
  if (text.empty()) return nullptr;
  try {
    entry->second = std::make_shared<const Tuning>(read_tuning(text, file, identity));
  } catch (const Error& error) {
    // Machines may share a home directory: plans of other machines only are no warning unless the file was requested.
    const bool other_machine = error.code() == ErrorCode::incompatible && !asked_for;
    if (!other_machine) warn("{}; plans are made by estimates", error.what());
  }
  return entry->second;
}

namespace {

template <class Model>
void take_plans_and_costs(Model& model) {
  model.tuned = load_tuning(identity_of(model));
  if (model.tuned == nullptr || model.tuned->costs.empty()) return;
  try {
    read_costs(model.tuned->costs, model.costs);
  } catch (const Error& error) {
    warn("{}: {}; costs are those built in", model.tuned->file, error.what());
  }
}

}  // namespace

void take_tuning(GpuModel& gpu) { take_plans_and_costs(gpu); }
void take_tuning(CpuModel& cpu) { take_plans_and_costs(cpu); }

std::string add_to_tuning(const std::string& text, const std::string& identity,
                          const std::map<std::string, TunedPlan, std::less<>>& plans,
                          const std::vector<NamedCost>& costs) {
  PlansJson json = {{"format", kPlansFormat}, {"version", PENSTOCK_VERSION}, {"machines", PlansJson::object()}};
  const PlansJson before = PlansJson::parse(text, nullptr, false);
  const bool same = before.is_object() && before.value("format", "") == kPlansFormat &&
                    before.value("version", "") == PENSTOCK_VERSION && before.contains("machines") &&
                    before["machines"].is_object();
  if (same) json["machines"] = before["machines"];
  if (same && before.contains("costs")) json["costs"] = before["costs"];
  PlansJson& works = json["machines"][identity];
  if (!works.is_object()) works = PlansJson::object();
  for (const auto& [work, tuned] : plans) {
    works.erase(work);
    if (tuned.choice.rule.empty()) continue;  // left to the planner
    PlansJson variables = PlansJson::object();
    for (const auto& [name, value] : tuned.choice.variables) variables[name] = value;
    works[work] = {{"rule", tuned.choice.rule}, {"variables", variables}, {"microseconds", tuned.microseconds}};
  }
  for (const auto& [name, value] : costs) json["costs"][identity][name] = value;
  return json.dump(2) + "\n";
}

Trial::Trial(std::string work, std::optional<PlanChoice> choice) : work_(std::move(work)) {
  trials().insert_or_assign(work_, std::move(choice));
}

Trial::~Trial() { trials().erase(work_); }

bool measuring() { return !trials().empty() || recording() != nullptr; }

PlansAskedFor* recording() { return current_recording(); }

PlansAskedFor::PlansAskedFor() { current_recording() = this; }

PlansAskedFor::~PlansAskedFor() { current_recording() = nullptr; }

void PlansAskedFor::add(AskedPlan plan) {
  if (std::ranges::find(asked_, plan.work, &AskedPlan::work) == asked_.end()) asked_.push_back(std::move(plan));
}

Unrecorded::Unrecorded() : before_(std::exchange(current_recording(), nullptr)) {}

Unrecorded::~Unrecorded() { current_recording() = before_; }

const std::optional<PlanChoice>* trial_of(const std::string& work) {
  const auto found = trials().find(work);
  return found == trials().end() ? nullptr : &found->second;
}

void fail_trial(const std::string& work, const PlanChoice& choice) {
  fail(ErrorCode::unsupported, "there is no plan of {} by this choice for {}", choice.rule, work);
}

namespace {

auto rules_of(const Problem& problem, const CpuModel& cpu) { return possible_cpu_rules(problem, cpu); }
auto rules_of(const GpuDenseProblem& problem, const GpuModel& gpu) { return dense_rules(problem, gpu); }
auto rules_of(const GpuScanProblem& problem, const GpuModel& gpu) { return scan_rules(problem, gpu); }
auto rules_of(const GpuLayerProblem& problem, const GpuModel& gpu) { return layer_rules(problem, gpu); }
auto rules_of(const GpuProductProblem& problem, const GpuModel& gpu) { return product_rules(problem, gpu); }

}  // namespace

template <class Problem, class Machine>
std::vector<Candidate> candidates(const Problem& problem, const Machine& machine, std::size_t most) {
  return candidates_of(rules_of(problem, machine), most);
}

template <class Problem, class Machine>
double estimate(const PlanChoice& choice, const Problem& problem, const Machine& machine) {
  const auto plan = plan_of_choice(choice, rules_of(problem, machine));
  return plan ? plan->microseconds : 0;
}

template std::vector<Candidate> candidates(const Problem&, const CpuModel&, std::size_t);
template std::vector<Candidate> candidates(const GpuDenseProblem&, const GpuModel&, std::size_t);
template std::vector<Candidate> candidates(const GpuScanProblem&, const GpuModel&, std::size_t);
template std::vector<Candidate> candidates(const GpuLayerProblem&, const GpuModel&, std::size_t);
template std::vector<Candidate> candidates(const GpuProductProblem&, const GpuModel&, std::size_t);
template double estimate(const PlanChoice&, const Problem&, const CpuModel&);
template double estimate(const PlanChoice&, const GpuDenseProblem&, const GpuModel&);
template double estimate(const PlanChoice&, const GpuScanProblem&, const GpuModel&);
template double estimate(const PlanChoice&, const GpuLayerProblem&, const GpuModel&);
template double estimate(const PlanChoice&, const GpuProductProblem&, const GpuModel&);

}  // namespace penstock::plan
