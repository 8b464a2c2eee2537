#include "penstock/train/profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "backend/cuda/driver/kernel.h"
#include "base/check.h"
#include "base/random.h"
#include "base/threads.h"
#include "data/batch.h"
#include "ops/memory/moment.h"
#include "ops/memory/recording.h"
#include "ops/product/machine_speed.h"
#include "penstock/data/dataset.h"
#include "penstock/data_description.h"
#include "penstock/train/kernel_profile.h"
#include "penstock/train/layer_profile.h"
#include "penstock/train/train.h"
#include "train/check_options.h"
#include "train/layer_pass.h"
#include "train/step_runner.h"

namespace penstock {

namespace training {

namespace {

/// Numbers as data has them, every position scored.
Example made_up(const DataDescription& data, Index rows, Index steps) {
  Random random(1);
  const auto positions = static_cast<std::size_t>(rows * steps);
  const auto draw = [&](Index size, Index below) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(size));
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(random.uniform() * static_cast<double>(below));
    return values;
  };
  const auto normal = [&](Index width) {
    std::vector<float> values(positions * static_cast<std::size_t>(width));
    for (float& value : values) value = static_cast<float>(2.0 * random.uniform() - 1.0);
    return values;
  };
  Example example;
  example.rows = rows;
  example.steps = steps;
  if (data.vocabulary > 0) {
    example.tokens = draw(rows * steps, data.vocabulary);
  } else {
    example.features = normal(data.input_size());
  }
  if (data.task == Task::forecast) {
    example.targets = normal(data.output_size());
    example.weights.assign(example.targets.size(), 1.0f);
  } else {
    example.labels = draw(rows * steps, data.output_size());
  }
  return example;
}

/// A forward pass of a model, over and over. Like TrainingPass, it has program(), queue() and run().
class ForwardPass {
 public:
  ForwardPass(Model::Impl& model, const Example& example, const Execution& execution)
      : weights_(model.weights_on(execution.device)),
        batch_(weights_->queue()),
        workspace_(model.programs.program(model.spec, model.data, target_of(example, execution)),
                   weights_->shared_queue()),
        outputs_(queue(), static_cast<std::size_t>(example.rows * example.steps * model.outputs()) * sizeof(float)),
        state_in_(queue(), static_cast<std::size_t>(example.rows * model.state_size) * sizeof(float)),
        state_out_(queue(), state_in_.bytes()) {
    std::optional<ops::StagingBuffer> staging;
    ops::Marker copied(queue());
    batch_.reserve(example);
    batch_.start_upload(example, staging, copied);
    copied.wait();
    state_in_.zero();
    batch_.bind(workspace_);
    workspace_.bind(weights_);
    workspace_.bind(graph::Home::outputs, outputs_.data());
    workspace_.bind(graph::Home::state_in, state_in_.data());
    workspace_.bind(graph::Home::state_out, state_out_.data());
    call_ = batch_.call(example, execution);
    workspace_.refresh(call_);
  }

  const graph::Program& program() { return workspace_.program(); }
  ops::Queue& queue() { return weights_->queue(); }
  void run(graph::Observer* observer) {
    workspace_.observe(observer);
    if (observer != nullptr) return workspace_.run(call_);
    if (!recording_) recording_.emplace(queue(), [this] { workspace_.run(call_); });
    recording_->run();
  }

 private:
  std::shared_ptr<graph::Weights> weights_;
  DeviceBatch batch_;
  graph::Workspace workspace_;
  ops::Buffer outputs_, state_in_, state_out_;
  ops::Call call_;
  std::optional<ops::Recording> recording_;
};

class TrainingPass {
 public:
  TrainingPass(Model::Impl& model, Example example, const Execution& execution)
      : model_(model),
        example_(std::move(example)),
        options_(options_for(execution)),
        shape_(training_shape(options_, resolve_loss(options_.loss, model.data.task), 0)),
        optimizer_(options_, model.parameters->layout()),
        runner_(model, shape_, execution, optimizer_, ops::first_step_state(1.0f), {}, 0) {
    ops::Target target = target_of(example_, execution);
    target.flags.set(CallFlag::training);
    program_ = nn::training_program(model.spec, model.data, shape_, target);
  }

  const graph::Program& program() { return *program_; }
  ops::Queue& queue() { return model_.weights_on(options_.execution.device)->queue(); }
  void run(graph::Observer* observer) {
    runner_.observe(observer);
    runner_.submit(example_, false, 0.0, {});
    while (runner_.take(observer != nullptr || !options_.execution.device.is_cuda())) {
    }
  }

 private:
  static TrainOptions options_for(const Execution& execution) {
    TrainOptions options;
    options.execution = execution;
    options.max_steps = 1;
    return options;
  }

  Model::Impl& model_;
  Example example_;
  TrainOptions options_;
  nn::TrainingShape shape_;
  OptimizerState optimizer_;
  std::shared_ptr<const graph::Program> program_;
  StepRunner runner_;
};

/// Notes a moment behind each node of a pass.
class Stopwatch final : public graph::Observer {
 public:
  explicit Stopwatch(ops::Queue& queue) : queue_(queue) {}

  void before() override { note(none); }
  void after(std::size_t node) override { note(node); }

  /// Adds what each node has taken and launched since the last call.
  void collect(std::vector<double>& seconds, std::vector<Index>& launches) {
    for (std::size_t i = 1; i < used_; ++i) {
      const Note& note = notes_[i];
      if (note.node == none) continue;
      seconds[note.node] += note.moment.since(notes_[i - 1].moment);
      launches[note.node] += static_cast<Index>(note.launches - notes_[i - 1].launches);
    }
    used_ = 0;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Note {
    ops::Moment moment;
    std::size_t node = none;
    unsigned long long launches = 0;
  };

  void note(std::size_t node) {
    if (used_ == notes_.size()) notes_.push_back({ops::Moment(queue_)});
    Note& note = notes_[used_++];
    note.node = node;
    note.launches = cuda::Kernel::launches();
    note.moment.set();
  }

  ops::Queue& queue_;
  std::vector<Note> notes_;
  std::size_t used_ = 0;
};

/// Notes a moment before and behind each launch of a pass.
class KernelWatch final : public graph::Observer, public cuda::LaunchObserver {
 public:
  explicit KernelWatch(ops::Queue& queue) : queue_(queue) { cuda::Kernel::observe(this); }
  ~KernelWatch() override { cuda::Kernel::observe(nullptr); }
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;

  void before() override { waiting_ = used_; }
  void after(std::size_t node) override {
    for (; waiting_ < used_; ++waiting_) launches_[waiting_].node = node;
  }
  void before_launch() override {
    if (used_ == launches_.size()) launches_.push_back({.start = ops::Moment(queue_), .end = ops::Moment(queue_)});
    launches_[used_].start.set();
  }
  void after_launch(const std::string& kernel) override {
    launches_[used_].kernel = kernel;
    launches_[used_++].end.set();
  }

  /// Adds the launches since the last call.
  void collect(const std::vector<graph::Node>& nodes,
               std::map<std::pair<std::string, std::string>, KernelProfile>& to) {
    for (std::size_t i = 0; i < waiting_; ++i) {
      const Launch& launch = launches_[i];
      KernelProfile& kernel = to[{nodes[launch.node].op.name, launch.kernel}];
      ++kernel.launches;
      kernel.seconds += launch.end.since(launch.start);
    }
    used_ = waiting_ = 0;
  }

 private:
  struct Launch {
    ops::Moment start, end;
    std::string kernel = {};
    std::size_t node = 0;
  };

  ops::Queue& queue_;
  std::vector<Launch> launches_;
  std::size_t used_ = 0, waiting_ = 0;  // of launches_: those of this pass, and those whose node is known
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Bytes of everything that a node reads and writes, each value once.
double bytes_of(const graph::Program& program, const graph::Node& node) {
  std::set<int> seen;
  double bytes = 0.0;
  for (const std::vector<graph::ValueId>* const values : {&node.reads, &node.writes}) {
    for (const graph::ValueId id : *values) {
      if (id && seen.insert(id.index).second) bytes += static_cast<double>(program.bytes(id));
    }
  }
  return bytes;
}

/// Keeps a GPU busy for some milliseconds, in which the host puts a whole pass into its queue: else the time that the
/// host takes for a launch would count as the op's.
class Delay {
 public:
  explicit Delay(ops::Queue& queue) {
    constexpr std::size_t bytes = std::size_t{256} << 20;
    if (queue.device().is_cuda()) buffer_ = ops::Buffer(queue, bytes);
  }
  void start() {
    constexpr int times = 100;
    if (buffer_.bytes() == 0) return;
    for (int i = 0; i < times; ++i) buffer_.zero();
  }

 private:
  ops::Buffer buffer_;
};

double usual_seconds(auto& pass, Index passes) {
  using Clock = std::chrono::steady_clock;
  constexpr Index rounds = 5;
  const Index each = std::max<Index>(1, passes / rounds);
  std::vector<double> seconds;
  for (Index round = 0; round < rounds; ++round) {
    pass.queue().synchronize();
    const auto start = Clock::now();
    for (Index i = 0; i < each; ++i) pass.run(nullptr);
    pass.queue().synchronize();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(each));
  }
  return median(std::move(seconds));
}

std::vector<ProfileEntry> entries_of(auto& pass, Index passes, double positions) {
  const graph::Program& program = pass.program();
  const std::vector<graph::Node>& nodes = program.graph().nodes();
  Stopwatch stopwatch(pass.queue());
  Delay delay(pass.queue());
  std::vector<Index> launches(nodes.size());
  std::map<std::string, std::vector<double>> seconds;  // of each kind of op, pass by pass
  for (Index i = 0; i < passes; ++i) {
    std::vector<double> of_nodes(nodes.size());
    delay.start();
    pass.run(&stopwatch);
    stopwatch.collect(of_nodes, launches);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      std::vector<double>& of_kind = seconds[nodes[n].op.name];
      of_kind.resize(static_cast<std::size_t>(i) + 1);
      of_kind.back() += of_nodes[n];
    }
  }
  std::map<std::string, ProfileEntry> kinds;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (launches[n] == 0 && seconds[nodes[n].op.name] == std::vector<double>(static_cast<std::size_t>(passes)))
      continue;
    ProfileEntry& entry = kinds[nodes[n].op.name];
    entry.op = nodes[n].op.name;
    ++entry.nodes;
    entry.launches += launches[n] / passes;
    entry.bytes += bytes_of(program, nodes[n]);
    entry.operations += 2.0 * nodes[n].op.products * positions;
  }
  std::vector<ProfileEntry> entries;
  for (auto& [name, entry] : kinds) {
    entry.seconds = median(seconds[name]);
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, std::ranges::greater{}, &ProfileEntry::seconds);
  return entries;
}

std::vector<KernelProfile> kernels_of(auto&& pass, Index passes) {
  if (!pass.queue().device().is_cuda()) return {};
  pass.run(nullptr);  // compiles them
  KernelWatch watch(pass.queue());
  Delay delay(pass.queue());
  std::map<std::pair<std::string, std::string>, KernelProfile> found;
  for (Index i = 0; i < passes; ++i) {
    delay.start();
    pass.run(&watch);
    watch.collect(pass.program().graph().nodes(), found);
  }
  std::vector<KernelProfile> kernels;
  for (auto& [name, kernel] : found) {
    kernels.push_back(
        {name.first, name.second, kernel.launches / passes, kernel.seconds / static_cast<double>(passes)});
  }
  std::ranges::sort(kernels, std::ranges::greater{}, &KernelProfile::seconds);
  return kernels;
}

Profile measured(auto&& pass, const ops::Target& target, Index passes, double positions) {
  constexpr int warm_up = 3;
  for (int i = 0; i < warm_up; ++i) pass.run(nullptr);
  const double seconds = usual_seconds(pass, passes);
  std::vector<ProfileEntry> entries = entries_of(pass, passes, positions);
  const ops::MachineSpeed speed = ops::measure_machine_speed(pass.queue(), target);
  return {.entries = std::move(entries),
          .seconds = seconds,
          .passes = passes,
          .copied = speed.copied,
          .products = speed.products};
}

}  // namespace

}  // namespace training

namespace {

void check_sizes(Index rows, Index steps, Index passes) {
  require_argument(rows >= 1, "rows", rows, "at least 1");
  require_argument(steps >= 1, "steps", steps, "at least 1");
  require_argument(passes >= 1, "passes", passes, "at least 1");
}

DType type_of(const Execution& execution) {
  if (!execution.device.is_cuda()) return DType::f32;
  return execution.precision == Precision::f16    ? DType::f16
         : execution.precision == Precision::bf16 ? DType::bf16
                                                  : DType::f32;
}

/// Calls `measure(pass, target)` with passes of a layer: forward, and for a training pass backward behind it.
void with_layer(const RecurrentSpec& spec, Index rows, Index steps, ProfiledPass kind, const Execution& execution,
                const auto& measure) {
  nn::check_spec(spec);
  const bool training = kind == ProfiledPass::training;
  RecurrentForm form{.dtype = type_of(execution), .rows = rows, .steps = steps};
  form.flags.set(CallFlag::training, training);
  Execution whole = execution;
  whole.threads = execution.device.is_cuda() ? 1 : resolve_threads(execution.threads);
  if (execution.device.is_cuda()) whole.precision = Precision::full;  // the form's dtype says it
  nn::check_form(spec, form, whole);
  measure(training::LayerPass(spec, form, whole, Pass::forward), nn::stack_target(form, whole));
  if (training) measure(training::LayerPass(spec, form, whole, Pass::backward), nn::stack_target(form, whole));
}

/// Calls `measure(pass, target)` with a forward pass or a training step of a copy of the model.
void with_model(const Model& model, Index rows, Index steps, ProfiledPass kind, const Execution& execution,
                const auto& measure) {
  using namespace training;  // NOLINT(google-build-using-namespace)
  require(kind != ProfiledPass::training || model.spec().members == 1,
          "model must be a single one for a training step, not an ensemble of {}: its members are trained one by one",
          model.spec().members);
  Model copy = model.with_int8({});
  Example example = made_up(model.data(), rows, steps);
  const ops::Target target = target_of(example, execution);
  if (kind == ProfiledPass::forward) return measure(ForwardPass(copy.impl(), example, execution), target);
  measure(TrainingPass(copy.impl(), std::move(example), execution), target);
}

Profile profile_of(const auto& with, Index rows, Index steps, Index passes) {
  check_sizes(rows, steps, passes);
  std::optional<Profile> whole;
  with([&](auto&& pass, const ops::Target& target) {
    Profile found = training::measured(pass, target, passes, static_cast<double>(rows) * static_cast<double>(steps));
    if (!whole) {
      whole = std::move(found);
      return;
    }
    whole->seconds += found.seconds;
    std::ranges::move(found.entries, std::back_inserter(whole->entries));
    std::ranges::sort(whole->entries, std::ranges::greater{}, &ProfileEntry::seconds);
  });
  return std::move(*whole);
}

std::vector<KernelProfile> kernel_profile_of(const auto& with, Index rows, Index steps, Index passes) {
  check_sizes(rows, steps, passes);
  std::vector<KernelProfile> kernels;
  with([&](auto&& pass, const ops::Target&) {
    std::ranges::move(training::kernels_of(pass, passes), std::back_inserter(kernels));
  });
  return kernels;
}

}  // namespace

Profile profile(const RecurrentSpec& spec, Index rows, Index steps, ProfiledPass pass, const Execution& execution,
                Index passes) {
  const auto with = [&](const auto& measure) { with_layer(spec, rows, steps, pass, execution, measure); };
  return profile_of(with, rows, steps, passes);
}

Profile profile(const Model& model, Index rows, Index steps, ProfiledPass pass, const Execution& execution,
                Index passes) {
  const auto with = [&](const auto& measure) { with_model(model, rows, steps, pass, execution, measure); };
  return profile_of(with, rows, steps, passes);
}

std::vector<KernelProfile> profile_kernels(const RecurrentSpec& spec, Index rows, Index steps, ProfiledPass pass,
                                           const Execution& execution, Index passes) {
  const auto with = [&](const auto& measure) { with_layer(spec, rows, steps, pass, execution, measure); };
  return kernel_profile_of(with, rows, steps, passes);
}

std::vector<KernelProfile> profile_kernels(const Model& model, Index rows, Index steps, ProfiledPass pass,
                                           const Execution& execution, Index passes) {
  const auto with = [&](const auto& measure) { with_model(model, rows, steps, pass, execution, measure); };
  return kernel_profile_of(with, rows, steps, passes);
}

}  // namespace penstock
