// Plans by measurement: each node of a graph that leaves something to choose runs by itself, with one plan after the
// other.

#include "penstock/tune.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "backend/cpu/machine.h"
#include "backend/cuda/driver/device.h"
#include "base/check.h"
#include "base/denormals.h"
#include "base/half.h"
#include "base/parallel_tasks.h"
#include "base/random.h"
#include "base/timing.h"
#include "base/warning.h"
#include "nn/explain.h"
#include "nn/layer/recurrent_graph.h"
#include "nn/model/model_impl.h"
#include "nn/model/model_programs.h"
#include "ops/memory/moment.h"
#include "penstock/model.h"
#include "plan/tuning.h"

namespace penstock {
namespace {

std::string machine_identity(const Device& device) {
  return device.is_cuda() ? identity_of(cuda::Device::get(device.index).model()) : identity_of(cpu::machine());
}

float value_of_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Numbers of a type as they lie in memory; of others (what ops keep in layouts of their own) floats.
class Numbers {
 public:
  explicit Numbers(DType type) : type_(type) {}

  static bool known(DType type) { return type == DType::f32 || type == DType::bf16 || type == DType::f16; }

  std::vector<std::uint8_t> random(std::size_t bytes) {
    std::vector<std::uint8_t> memory(bytes);
    const std::size_t size = is_short() ? 2 : 4;
    for (std::size_t at = 0; at + size <= bytes; at += size) {
      constexpr float range = 0.03f;  // sums over some thousand of them do not saturate a gate
      const auto value = static_cast<float>(2 * random_.uniform() - 1) * range;
      const auto bits = std::bit_cast<std::uint32_t>(value);
      const auto high = static_cast<std::uint16_t>(type_ == DType::f16 ? random_half() : bits >> 16);
      if (is_short()) std::memcpy(&memory[at], &high, size);
      if (!is_short()) std::memcpy(&memory[at], &bits, size);
    }
    return memory;
  }

  std::vector<float> read(const std::vector<std::uint8_t>& memory) const {
    std::vector<float> values;
    const std::size_t size = is_short() ? 2 : 4;
    for (std::size_t at = 0; at + size <= memory.size(); at += size) {
      float value = 0;
      std::uint16_t half = 0;
      std::memcpy(is_short() ? static_cast<void*>(&half) : &value, &memory[at], size);
      if (is_short()) value = type_ == DType::f16 ? float_of_half(half) : value_of_bf16(half);
      values.push_back(value);
    }
    return values;
  }

 private:
  bool is_short() const { return type_ == DType::bf16 || type_ == DType::f16; }
  /// Returns bits of a half of size 2^-10 to 2^-6.
  std::uint64_t random_half() {
    constexpr std::uint64_t smallest = 5, exponents = 4, mantissa = 1023, sign = 0x8000;
    const std::uint64_t bits = random_.bits();
    return (bits & sign) | (smallest + (bits >> 20) % exponents) << 10 | (bits >> 40 & mantissa);
  }

  DType type_;
  Random random_{7};
};

/// One node with memory of its own, full of small numbers.
class NodeRun {
 public:
  NodeRun(const graph::Program& program, const graph::Node& node, ops::Queue& queue)
      : target_(program.target()), node_(node), queue_(queue) {
    std::vector<graph::ValueId> ids = node.reads;
    ids.insert(ids.end(), node.writes.begin(), node.writes.end());
    for (const graph::ValueId id : ids) {
      const graph::Value& value = program.graph().value(id ? id : graph::ValueId{0});
      types_.push_back(value.dtype);
      opaque_.push_back(!id || value.width < 0 || !Numbers::known(value.dtype));
      // Tapes hold numbers of activations beside floats. Pairs of bfloat16 are small floats, too; the halves of random
      // floats would be infinities and NaN among others.
      const DType type = opaque_.back() && is_rounded() ? rounded_type() : value.dtype;
      memory_.push_back(id ? filled(program.bytes(id), type) : ops::Buffer());
      if (id && opaque_.back() && memory_.size() <= node.reads.size()) tapes_.push_back({memory_.size() - 1, type});
      operands_.push_back(id ? memory_.back().data() : nullptr);
    }
    batch_ = {.rows = target_.rows, .steps = target_.steps};
    if (target_.has(CallFlag::lengths)) set_lengths();
    if (target_.has(CallFlag::reset)) {
      reset_ = ops::Buffer(queue_, static_cast<std::size_t>(target_.positions()));
      reset_.zero();
      batch_.reset = static_cast<const std::uint8_t*>(reset_.data());
    }
    prepare();
  }

  /// Prepares the works with the plans of this thread. Throws Error(unsupported) if one of these is impossible.
  void prepare() {
    executable_ = node_.op.prepare(target_);
    scratch_ = ops::Buffer(queue_, executable_->scratch_bytes());
    persistent_ = ops::Buffer(queue_, executable_->persistent_bytes());
    persistent_.zero();
  }

  /// Prepares only the caches of compiled kernels; on any thread.
  void compile() const { node_.op.prepare(target_); }

  /// Seconds of runs that together take about that long.
  std::vector<double> sample(double seconds) {
    const ops::Call now = call();
    const WithDenormals as_zeros(DenormalMode::zeros());  // as programs run
    const auto run = [&] { executable_->run(now, {operands_.data(), scratch_.data(), persistent_.data()}); };
    if (!queue_.device().is_cuda()) return time_calls(seconds, run);
    ops::Moment start(queue_), end(queue_);
    return sample_calls(seconds, [&] {
      start.set();
      run();
      end.set();
      return end.since(start);
    });
  }

  /// The beginning and the end of each result of a run, of the same operands every time: an op may write over its tape.
  std::vector<std::vector<float>> results() {
    for (const auto& [operand, type] : tapes_) fill(memory_[operand], type);
    const WithDenormals as_zeros(DenormalMode::zeros());
    executable_->run(call(), {operands_.data(), scratch_.data(), persistent_.data()});
    std::vector<std::vector<float>> all;
    for (std::size_t i = node_.reads.size(); i < memory_.size(); ++i) {
      if (opaque_[i] || memory_[i].bytes() == 0) continue;
      constexpr std::size_t most = std::size_t{1} << 18;
      const std::size_t bytes = memory_[i].bytes(), part = std::min(bytes, most);
      std::vector<std::uint8_t> first(part), last(part);
      memory_[i].download(first.data(), part);
      memory_[i].download(last.data(), part, bytes - part);
      all.push_back(Numbers(types_[i]).read(first));
      all.push_back(Numbers(types_[i]).read(last));
    }
    return all;
  }

  /// Microseconds by the planner's plans.
  double expected(const plan::Machine& machine) const {
    double sum = 0;
    if (!node_.op.explain) return sum;
    for (const PlanReport& report : node_.op.explain(target_, machine)) sum += report.microseconds;
    return sum;
  }

  const std::string& name() const { return node_.op.name; }
  /// Returns whether the op multiplies halves, so that its results have 8 to 11 bits. On a CPU, such values are floats
  /// for other ops.
  bool is_rounded() const {
    if (target_.device.is_cuda()) return target_.dtype == DType::bf16 || target_.dtype == DType::f16;
    return target_.execution.precision != Precision::full;
  }

 private:
  ops::Buffer filled(std::size_t bytes, DType type) {
    ops::Buffer buffer(queue_, bytes);
    fill(buffer, type);
    return buffer;
  }
  DType rounded_type() const { return target_.device.is_cuda() ? target_.dtype : DType::bf16; }
  /// Large buffers hold the same numbers again and again: to draw them takes longer than a pass.
  static void fill(ops::Buffer& buffer, DType type) {
    constexpr std::size_t most = std::size_t{1} << 22;
    const std::vector<std::uint8_t> numbers = Numbers(type).random(std::min(buffer.bytes(), most));
    for (std::size_t at = 0; at < buffer.bytes(); at += most) {
      buffer.upload(numbers.data(), std::min(buffer.bytes() - at, most), at);
    }
  }

  ops::Call call() const { return {.batch = batch_, .threads = target_.execution.threads, .stream = queue_.stream()}; }

  /// Spread over 1..T.
  void set_lengths() {
    constexpr Index step = 7919;  // a prime
    std::vector<Index> lengths;
    for (Index b = 0; b < target_.rows; ++b) lengths.push_back(target_.steps - b * step % target_.steps);
    const std::size_t bytes = lengths.size() * sizeof(Index);
    lengths_ = ops::Buffer(queue_, bytes);
    lengths_.upload(lengths.data(), bytes);
    batch_.lengths = static_cast<const Index*>(lengths_.data());
  }

  const ops::Target& target_;
  const graph::Node& node_;
  ops::Queue& queue_;
  Batch batch_;
  std::vector<ops::Buffer> memory_;
  std::vector<DType> types_;                          // of each operand
  std::vector<bool> opaque_;                          // whether nobody but the op knows what lies there
  std::vector<std::pair<std::size_t, DType>> tapes_;  // operands that only ops know, and what they are filled with
  std::vector<void*> operands_;
  ops::Buffer lengths_, reset_, scratch_, persistent_;
  std::unique_ptr<ops::Executable> executable_;
};

using Results = std::vector<std::vector<float>>;

/// Plans differ in the order of their sums and in what they round on the way, and in nothing else.
bool are_alike(const Results& a, const Results& b, bool rounded) {
  const float tolerance = rounded ? 0x1p-4f : 0x1p-10f;
  for (std::size_t i = 0; i < a.size(); ++i) {
    float scale = 0, off = 0;
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      scale = std::max(scale, std::abs(a[i][j]));
      const float difference = std::abs(a[i][j] - b[i][j]);
      off = std::isnan(difference) ? std::numeric_limits<float>::infinity() : std::max(off, difference);
    }
    if (off > tolerance * scale) return false;
  }
  return true;
}

plan::PlanChoice choice_of(const MeasuredPlan& plan) {
  plan::PlanChoice choice{.rule = plan.rule, .variables = {}};
  for (const auto& [name, value] : plan.variables) choice.variables.emplace_back(name, value);
  return choice;
}

/// A work, and the nodes whose time depends on its plan.
struct Work {
  plan::AskedPlan asked;
  std::vector<NodeRun*> nodes;
};

class Tuner {
 public:
  Tuner(const std::vector<std::shared_ptr<const graph::Program>>& programs, const TuneOptions& options)
      : programs_(programs), options_(options), queue_(programs.front()->target().device) {
    machine_ = machine_identity(queue_.device());
    const Execution& execution = programs_.front()->target().execution;
    estimates_ = queue_.device().is_cuda() || (execution.precision == Precision::full && !execution.exact);
    for (const auto& program : programs_) find_works(*program);
  }

  std::vector<TunedWork> run() {
    for (Work& work : works_) {
      candidates_.push_back(work.asked.candidates(static_cast<std::size_t>(options_.candidates)));
      total_ += static_cast<Index>(candidates_.back().size()) + 1;
    }
    std::vector<TunedWork> results;
    for (std::size_t i = 0; i < works_.size(); ++i) results.push_back(tune_work(works_[i], candidates_[i]));
    return results;
  }

 private:
  /// Finds the works that nodes ask the planner for. The first of equal nodes stands for all.
  void find_works(const graph::Program& program) {
    for (const graph::Node& node : program.graph().nodes()) {
      plan::PlansAskedFor recording;
      node.op.prepare(program.target());
      std::vector<plan::AskedPlan> asked = recording.take();
      if (asked.empty()) continue;
      std::string key = node.op.name;
      for (const plan::AskedPlan& one : asked) key += "\n" + one.work;
      if (!seen_.emplace(key, true).second) continue;
      nodes_.push_back(std::make_unique<NodeRun>(program, node, queue_));
      for (plan::AskedPlan& one : asked) {
        const auto found = std::ranges::find_if(works_, [&](const Work& w) { return w.asked.work == one.work; });
        if (found == works_.end()) {
          works_.push_back({std::move(one), {nodes_.back().get()}});
        } else if (std::ranges::find(found->nodes, nodes_.back().get()) == found->nodes.end()) {
          found->nodes.push_back(nodes_.back().get());
        }
      }
    }
  }

  void report(const std::string& work) {
    if (options_.at && !options_.at(work, done_, total_)) fail(ErrorCode::interrupted, "tuning was interrupted");
    ++done_;
  }

  /// Measures all nodes of a work together, with the plans of this thread; microseconds.
  TimeSpread measure(const Work& work, double seconds) {
    TimeSpread sum;
    for (NodeRun* node : work.nodes) {
      const TimeSpread one = spread(node->sample(seconds / static_cast<double>(work.nodes.size())));
      sum.median += one.median * 1e6;
      sum.lower_quartile += one.lower_quartile * 1e6, sum.upper_quartile += one.upper_quartile * 1e6;
    }
    return sum;
  }

  /// The planner's plans say what is right; one that computes something else is none, however quick it is.
  bool agrees(const Work& work, bool on_trial) {
    for (NodeRun* node : work.nodes) {
      Results results = node->results();
      if (!on_trial) {
        expected_[node] = std::move(results);
      } else if (!are_alike(expected_[node], results, node->is_rounded())) {
        warn("a plan on trial for {} computes something else than the planner's; it is left out", work.asked.work);
        return false;
      }
    }
    return true;
  }

  /// Tries a choice, or the planner's own. Returns none if it is impossible.
  std::optional<TimeSpread> attempt(const Work& work, const std::optional<plan::PlanChoice>& choice, double seconds) {
    const plan::Trial trial(work.asked.work, choice);
    try {
      for (NodeRun* node : work.nodes) node->prepare();
      if (!agrees(work, choice.has_value())) return std::nullopt;
      return measure(work, seconds);
    } catch (const Error& error) {
      if (!choice || error.code() != ErrorCode::unsupported) throw;
      return std::nullopt;
    }
  }

  /// Puts the kernels of all candidates into the cache, since compiling takes longer than measuring. What cannot be
  /// prepared says so when its turn comes.
  void compile(const Work& work, const std::vector<plan::Candidate>& candidates) {
    if (!queue_.device().is_cuda()) return;
    side_by_side(candidates.size(), [&](std::size_t i) {
      const plan::Trial trial(work.asked.work, candidates[i].choice);
      try {
        for (const NodeRun* node : work.nodes) node->compile();
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
      }
    });
  }

  static void set_times(MeasuredPlan& plan, const TimeSpread& times) {
    plan.microseconds = times.median, plan.low = times.lower_quartile, plan.high = times.upper_quartile;
  }

  static MeasuredPlan measured_plan(const plan::Candidate& candidate, const TimeSpread& times) {
    MeasuredPlan plan;
    plan.rule = candidate.choice.rule;
    for (const auto& [name, value] : candidate.choice.variables) plan.variables.emplace_back(name, value);
    plan.text = candidate.text, plan.estimated = candidate.microseconds;
    set_times(plan, times);
    return plan;
  }

  /// Returns the estimate of all nodes of a work. On a CPU the plan covers all work of a node, and a backward pass has
  /// more than a forward one; on a GPU there are further products before and behind.
  std::function<double(const MeasuredPlan&, const std::vector<double>&)> estimate_of(const Work& work) const {
    const plan::Machine machine = nn::machine_of(programs_.front()->target().execution);
    const double planned = work.asked.microseconds;
    double all = 0;
    for (const NodeRun* const node : work.nodes) all += node->expected(machine);
    if (planned <= 0 || all <= 0) return {};
    const double times = queue_.device().is_cuda() ? static_cast<double>(work.nodes.size()) : all / planned;
    const double rest = std::max(0.0, all - times * planned);
    return [=, estimate = work.asked.estimate](const MeasuredPlan& plan, const std::vector<double>& costs) {
      const double own = estimate(choice_of(plan), costs);
      return own > 0 ? times * own + rest : 0;
    };
  }

  TunedWork tune_work(const Work& work, const std::vector<plan::Candidate>& candidates) {
    TunedWork result;
    result.work = work.asked.work, result.machine = machine_;
    for (const NodeRun* node : work.nodes) result.node += (result.node.empty() ? "" : ", ") + node->name();
    result.planned.text = work.asked.text;
    result.planned.estimated = work.asked.microseconds;
    report(result.work);
    set_times(result.planned, *attempt(work, std::nullopt, options_.seconds));
    if (estimates_) result.estimate = estimate_of(work);
    compile(work, candidates);
    std::optional<std::size_t> quickest;
    double least = result.planned.microseconds;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      report(result.work);
      const std::optional<TimeSpread> times = attempt(work, candidates[i].choice, options_.seconds);
      if (!times) continue;
      ++result.tried;
      result.measured.push_back(measured_plan(candidates[i], *times));
      if (times->median < least) least = times->median, quickest = i;
    }
    if (quickest) compare(work, candidates[*quickest], result);
    if (result.best.rule.empty()) result.best = result.planned;
    if (!result.best.rule.empty()) keep(work, result.best);
    return result;
  }

  /// The quickest of many was also lucky: it and the planner's plan are measured once more, by turns.
  void compare(const Work& work, const plan::Candidate& candidate, TunedWork& result) {
    constexpr int turns = 3;
    std::vector<TimeSpread> planned, other;
    for (int turn = 0; turn < turns; ++turn) {
      planned.push_back(*attempt(work, std::nullopt, options_.seconds));
      other.push_back(*attempt(work, candidate.choice, options_.seconds));
    }
    const auto middle = [](std::vector<TimeSpread>& all) {
      std::ranges::sort(all, {}, &TimeSpread::median);
      return all[all.size() / 2];
    };
    set_times(result.planned, middle(planned));
    const MeasuredPlan best = measured_plan(candidate, middle(other));
    if (best.microseconds < result.planned.microseconds * (1 - options_.margin)) result.best = best;
  }

  /// Keeps the best plan for the works that are measured after this one.
  void keep(const Work& work, const MeasuredPlan& best) {
    kept_.push_back(std::make_unique<plan::Trial>(work.asked.work, choice_of(best)));
    for (NodeRun* node : work.nodes) node->prepare();
  }

  const std::vector<std::shared_ptr<const graph::Program>>& programs_;
  const TuneOptions& options_;
  ops::Queue queue_;
  std::string machine_;
  std::map<std::string, bool> seen_;
  std::map<const NodeRun*, Results> expected_;
  std::vector<std::unique_ptr<NodeRun>> nodes_;
  std::vector<Work> works_;
  std::vector<std::vector<plan::Candidate>> candidates_;
  std::vector<std::unique_ptr<plan::Trial>> kept_;
  Index done_ = 0, total_ = 0;
  bool estimates_ = false;  // whether costs are those of what is measured
};

void check_tuning(const TuneOptions& options) {
  constexpr int most = 1000;
  constexpr double longest = 3600;
  require_argument(options.seconds > 0 && options.seconds <= longest, "seconds", options.seconds,
                   "above 0 and at most {}", longest);
  require_argument(options.candidates >= 1 && options.candidates <= most, "candidates", options.candidates, "1 to {}",
                   most);
  require_argument(options.margin >= 0 && options.margin < 1, "margin", options.margin, "0 to 1");
}

}  // namespace

std::vector<TunedWork> tune(const LayerQuestion& question, const TuneOptions& options) {
  check_tuning(options);
  require_argument(question.chip.empty(), "chip", question.chip, "empty, since a chip has to be there to be measured");
  explain(question);  // refuses what is impossible
  RecurrentSpec spec{.cell = question.cell, .input_size = question.input, .hidden_size = question.hidden};
  spec.heads = question.heads;
  RecurrentForm form;
  form.dtype = form.weights = model_target(question.rows, question.steps, question.execution).dtype;
  // On a GPU the precision is that of what is stored, and has been spent on the form's types.
  Execution execution = question.execution;
  if (execution.device.is_cuda() && execution.precision != Precision::tf32) execution.precision = Precision::full;
  form.rows = question.rows, form.steps = question.steps;
  form.flags.set(CallFlag::lengths, question.lengths), form.flags.set(CallFlag::reset, question.reset),
      form.flags.set(CallFlag::training, question.training);
  nn::check_spec(spec);
  nn::check_form(spec, form, execution);
  const nn::StackPass forward = nn::forward_pass(spec, form, execution);
  std::vector<std::shared_ptr<const graph::Program>> programs = {forward.program};
  if (question.training) {
    programs.push_back(nn::backward_pass(spec, form, execution, forward.tape).program);
  }
  return Tuner(programs, options).run();
}

std::vector<TunedWork> tune(const Model& model, Index rows, Index steps, bool training, const Execution& execution,
                            const TuneOptions& options) {
  check_tuning(options);
  require(rows >= 1 && steps >= 1, "rows and steps must be at least 1, not {} and {}", rows, steps);
  ops::Target target = model_target(rows, steps, execution);
  target.flags.set(CallFlag::training, training);
  const ModelSpec& spec = model.impl().spec;
  const DataDescription& data = model.impl().data;
  nn::TrainingShape shape;
  shape.loss = data.task == Task::forecast ? LossKind::mse : LossKind::cross_entropy;
  graph::Graph graph = training ? nn::training_graph(spec, data, shape, target) : nn::forward_graph(spec, data, target);
  const std::vector<std::shared_ptr<const graph::Program>> programs = {
      std::make_shared<const graph::Program>(std::move(graph), target)};
  return Tuner(programs, options).run();
}

std::string plans_path() { return plan::plan_file(); }

}  // namespace penstock
