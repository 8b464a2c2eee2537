#include "penstock/train/fit.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "penstock/data/dataset.h"
#include "penstock/stop.h"
#include "penstock/train/fine_tune.h"

namespace penstock {

namespace {

class Fit {
 public:
  Fit(Model& model, Dataset& data, const TrainOptions& options, const FitOptions& fit, const FitCallbacks& callbacks)
      : model_(model), data_(data), options_(options), fit_(fit), callbacks_(callbacks) {}

  FitResult run() {
    if (fit_.layers) {
      train_members();
    } else {
      unless_interrupted([&] { fit_without_layers(); });
    }
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
      const bool resume = fit_.resume && (i == 0 || std::filesystem::exists(options.checkpoint_path));
      add({options.seed, train(model, data_, options, callbacks, resume)});
    }
    if (others.empty()) return;
    others.insert(others.begin(), std::move(model_));
    model_ = Model::combine(others);
  }

  Model another_model(std::uint64_t seed) const {
    const ModelSpec& spec = model_.spec();
    if (fit_.origin != nullptr) return continue_from(*fit_.origin, data_, spec.dropout);
    Model model(spec, data_.description(), seed);
    initialise(model, fit_.initial, seed);
    fit_autoregression(model, data_);
    return model;
  }

  void add(FitResult::Member member) {
    const Progress before = result_.last;
    const std::string gave_up = result_.gave_up;
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
      model_ = fit_filters(data_, fit_.finish.seed, options_.execution);
      result_.finished = {.filter_shares = {.layers = 0.0, .filters = 1.0}, .filters = true};
    }
    if (data_.held_out_steps() > 0) validate();
    result_.last.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void finish() {
    const bool series = data_.description().task == Task::forecast;
    if (result_.finished.filters || (series && !result_.scored())) return;
    result_.finished = finish_training(model_, data_, fit_.finish, options_.execution);
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
  const TrainOptions& options_;
  const FitOptions& fit_;
  const FitCallbacks& callbacks_;
  FitResult result_;
};

}  // namespace

std::string member_path(const std::string& path, Index number) {
  return number == 0 || path.empty() ? path : fmt::format("{}.{}", path, number + 1);
}

FitResult fit(Model& model, Dataset& data, const TrainOptions& options, const FitOptions& fit_options,
              const FitCallbacks& callbacks) {
  require(fit_options.seeds >= 1, "seeds must be at least 1, not {}", fit_options.seeds);
  if (fit_options.layers) model.check_members(fit_options.seeds);
  return Fit(model, data, options, fit_options, callbacks).run();
}

}  // namespace penstock
