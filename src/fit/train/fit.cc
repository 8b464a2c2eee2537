#include "penstock/train/fit.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "penstock/data/dataset.h"
#include "penstock/stop.h"
#include "penstock/train/fine_tune.h"
#include "train/check_options.h"

namespace penstock {

namespace {

class Fit {
 public:
  Fit(Model& model, Dataset& data, const FitPlan& plan, const FitCallbacks& callbacks)
      : model_(model), data_(data), options_(plan.options), plan_(plan), fit_(plan.request), callbacks_(callbacks) {}

  /// `trained`: the result of the training, if it has been done; else null.
  FitResult run(const TrainResult* trained) {
    if (trained != nullptr) {
      add({options_.seed, *trained});
    } else if (plan_.trains_layers()) {
      train_members();
    }
    unless_interrupted([&] {
      if (trained == nullptr && !plan_.trains_layers()) fit_without_layers();
    });
    unless_interrupted([&] { finish(); });
    unless_interrupted([&] {
      if (result_.scored() && callbacks_.scored) callbacks_.scored(model_, result_);
    });
    unless_interrupted([&] { refit(model_, data_, result_.finished, options_.execution); });
    return std::move(result_);
  }

 private:
  void unless_interrupted(const std::function<void()>& work) {
    if (result_.interrupted) return;
    if (!callbacks_.stop) return work();
    const Stoppable on_demand(callbacks_.stop);
    result_.interrupted = !completes(work);
  }

  /// An interrupt leaves the models that there are.
  void train_members() {
    const std::string start = data_.position();
    if (fit_.continues && fit_.seeds > 1) origin_ = continue_from(model_, data_, model_.spec().dropout);
    std::vector<Model> others;
    for (Index i = 0; i < fit_.seeds && !result_.interrupted; ++i) {
      TrainOptions options = options_;
      options.seed += static_cast<std::uint64_t>(i);
      for (std::string* const path : {&options.checkpoint_path, &options.metrics_path, &options.tensorboard_path}) {
        *path = member_path(*path, i);
      }
      data_.restore(start);
      if (i > 0) others.push_back(another_model(options.seed));
      Model& model = i == 0 ? model_ : others.back();
      TrainCallbacks callbacks = callbacks_.begin ? callbacks_.begin(model, i, options) : TrainCallbacks();
      callbacks.stop = callbacks_.stop;
      const bool resume = plan_.resume && (i == 0 || std::filesystem::exists(options.checkpoint_path));
      add({options.seed, train(model, data_, options, callbacks, resume)});
    }
    if (others.empty()) return;
    others.insert(others.begin(), std::move(model_));
    model_ = Model::combine(others);
  }

  Model another_model(std::uint64_t seed) const {
    if (origin_) return continue_from(*origin_, data_, origin_->spec().dropout);
    return new_model(model_.spec(), data_, seed, fit_.initial);
  }

  void add(FitResult::Member member) {
    const Progress before = result_.last;
    const Message gave_up = result_.gave_up;
    static_cast<TrainResult&>(result_) = member.result;
    result_.last.step += before.step;
    result_.last.seconds += before.seconds;
    result_.last.epoch += before.epoch;
    result_.last.rollbacks += before.rollbacks;
    if (!gave_up.empty()) result_.gave_up = gave_up;  // of the first model that did
    result_.members.push_back(std::move(member));
  }

  void fit_without_layers() {
    const auto start = std::chrono::steady_clock::now();
    if (data_.description().labels_sequences()) {
      model_ = fit_filters(data_, options_.seed, options_.execution);
      result_.finished = {.filter_shares = {.layers = 0.0, .filters = 1.0}, .filters = true};
    }
    if (data_.held_out_steps() > 0) validate();
    result_.last.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void finish() {
    const bool series = data_.description().task == Task::forecast;
    if (result_.finished.filters || (series && !result_.scored())) return;
    const FinishOptions how{.shrink = fit_.keep_best.value_or(true), .filters = fit_.filters, .seed = options_.seed};
    result_.finished = finish_training(model_, data_, how, options_.execution);
    const bool changed = result_.finished.changed || model_.spec().members > 1;
    if (changed && result_.scored()) validate();
  }

  void validate() {
    result_.validation.reset();  // of another model, should this be interrupted
    TrainOptions options = options_;
    options.validation_batches = 0;
    result_.validation = evaluate(model_, data_, options);
  }

  Model& model_;
  Dataset& data_;
  TrainOptions options_;
  const FitPlan& plan_;
  const FitRequest& fit_;
  const FitCallbacks& callbacks_;
  std::optional<Model> origin_;  // from which the models of other seeds continue
  FitResult result_;
};

}  // namespace

std::string member_path(const std::string& path, Index number) {
  return number == 0 || path.empty() ? path : fmt::format("{}.{}", path, number + 1);
}

std::vector<OutputFile> training_outputs(const TrainOptions& options, Index models) {
  std::vector<OutputFile> files;
  constexpr Index most = 1000;  // beyond all ensembles; the number is checked later
  for (Index i = 0; i < std::min(models, most); ++i) {
    files.push_back({"checkpoint_path", member_path(options.checkpoint_path, i), FileKind::checkpoint});
    files.push_back({"metrics_path", member_path(options.metrics_path, i), FileKind::metrics});
    files.push_back({"tensorboard_path", member_path(options.tensorboard_path, i)});
  }
  return files;
}

std::string describe_options(const FitPlan& plan, Task task) {
  nlohmann::json options = {{"seed", plan.options.seed}};
  if (plan.trains_layers()) options = training::identity(plan.options, task);
  if (plan.request.seeds > 1) options["seeds"] = plan.request.seeds;
  return options.dump();
}

Model new_model(const ModelSpec& spec, const Dataset& data, std::uint64_t seed, const Initialisation& initial) {
  Model model(spec, data.description(), seed);
  initialise(model, initial, seed);
  fit_autoregression(model, data);
  return model;
}

FitResult fit(Model& model, Dataset& data, const FitPlan& plan, const FitCallbacks& callbacks) {
  const Index seeds = plan.request.seeds;
  require_argument(seeds >= 1, "seeds", seeds, "at least 1");
  if (plan.trains_layers()) {
    try {
      model.check_members(seeds);
    } catch (const Error& error) {
      throw error.within({the_option("seeds", fmt::format("{}", seeds)), ": "});
    }
  }
  return Fit(model, data, plan, callbacks).run(nullptr);
}

FitResult finish_fit(Model& model, Dataset& data, const FitPlan& plan, const TrainResult& trained) {
  return Fit(model, data, plan, {}).run(&trained);
}

}  // namespace penstock
