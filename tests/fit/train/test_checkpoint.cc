// Checkpoints: a run goes on bit for bit, survives being killed at any moment, and refuses what belongs to another run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/safetensors.h"
#include "nn/model/model_impl.h"
#include "penstock/train.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/tolerance.h"
#include "toy_data.h"
#include "train/checkpoint.h"

namespace penstock {
namespace {

using test::CopyTask;
using test::expect_error;
using test::same_bits;
using test::TemporaryFolder;
using test::weights;

const ModelSpec spec{.cell = "lstm", .width = 8, .blocks = 2, .convolution = 3, .feed_forward = 1.0, .dropout = 0.1};

TrainOptions options(const std::string& checkpoint, Index steps = 20) {
  TrainOptions result;
  result.max_steps = steps;
  result.batch = 4;
  result.length = 12;
  result.checkpoint_path = checkpoint;
  result.execution.threads = 1;
  return result;
}

/// Ends the run behind this many batches, as Ctrl-C would.
TrainCallbacks stop_after(Index batches) {
  TrainCallbacks callbacks;
  callbacks.stop = [left = batches]() mutable { return --left == 0; };
  return callbacks;
}

std::vector<float> uninterrupted(const TrainOptions& given) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  TrainOptions without = given;
  without.checkpoint_path.clear();
  train(model, data, without);
  return weights(model);
}

class Checkpoint : public testing::Test {
 protected:
  /// Trains up to `batches` and leaves a checkpoint.
  void train_part(const TrainOptions& given, Index batches) {
    CopyTask data;
    Model model(spec, data.description(), 1);
    const TrainResult result = train(model, data, given, stop_after(batches));
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(result.last.step, batches);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path("run.safetensors");
};

TEST_F(Checkpoint, AResumedRunEndsInTheSameBits) {
  std::vector<TrainOptions> kinds(4, options(path_));
  kinds[1].optimizer = Optimizer::sgd;
  kinds[2].average = 0.9;
  kinds[3].schedule = Schedule::plateau, kinds[3].validate_steps = 1, kinds[3].learning_rate = 1e-5;
  for (const TrainOptions& given : kinds) {
    const std::vector<float> expected = uninterrupted(given);
    for (const Index cut : {1, 10, 19}) {
      train_part(given, cut);
      // Other weights and another seed, as in a new process: everything must come from the file.
      CopyTask data(77);
      Model model(spec, data.description(), 5);
      const TrainResult result = train(model, data, given, {}, true);
      EXPECT_EQ(result.last.step, 20);
      EXPECT_TRUE(same_bits(weights(model), expected)) << "cut at " << cut;
    }
  }
}

TEST_F(Checkpoint, TheLastValidationEndsWhenAskedAndCanBeMadeUpFor) {
  const std::vector<float> expected = uninterrupted(options(path_));
  CopyTask data;
  Model model(spec, data.description(), 1);
  bool validating = false;
  data.before_validation = [&](Index) {
    validating = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // longer than a Stoppable waits between questions
  };
  TrainCallbacks callbacks;
  callbacks.stop = [&] { return validating; };
  const TrainResult result = train(model, data, options(path_), callbacks);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.last.step, 20);
  EXPECT_FALSE(result.validation);
  EXPECT_TRUE(same_bits(weights(model), expected));
  CopyTask fresh(77);
  Model again(spec, fresh.description(), 5);
  const TrainResult resumed = train(again, fresh, options(path_), {}, true);
  EXPECT_FALSE(resumed.interrupted);
  EXPECT_TRUE(resumed.validation);
  EXPECT_TRUE(same_bits(weights(again), expected));
}

TEST_F(Checkpoint, AFinishedRunResumesToItself) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  train(model, data, options(path_));
  const std::string file = folder_.read("run.safetensors");
  Model again(spec, data.description(), 2);
  const TrainResult result = train(again, data, options(path_), {}, true);
  EXPECT_EQ(result.last.step, 20);
  EXPECT_TRUE(same_bits(weights(again), weights(model)));
  ASSERT_TRUE(result.validation);
}

TEST_F(Checkpoint, CountsGoOn) {
  TrainOptions given = options(path_);
  given.log_every = 0.0;
  given.metrics_path = folder_.path("metrics.jsonl");
  const auto spoil = [](Model& model, CopyTask& data) {
    data.spoil = [&model, kept = 0.0f](Index batch, Example&) mutable {
      float& weight = model.impl().parameters->values()[3];
      if (batch == 2) kept = std::exchange(weight, std::numeric_limits<float>::quiet_NaN());
      if (batch == 3) weight = kept;
    };
  };
  CopyTask data;
  Model model(spec, data.description(), 1);
  spoil(model, data);
  train(model, data, given, stop_after(5));
  Model resumed(spec, data.description(), 1);
  CopyTask fresh;
  const TrainResult result = train(resumed, fresh, given, {}, true);
  EXPECT_EQ(result.last.step, 20);
  EXPECT_EQ(result.last.skipped, 1);
  const std::string metrics = folder_.read("metrics.jsonl");
  // run, train, final; run, resume, train, validation, final
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 1 + 5 + 1 + 1 + 1 + 15 + 2);
  EXPECT_THAT(metrics, testing::HasSubstr("{\"kind\":\"resume\",\"step\":5}\n"));
}

TEST_F(Checkpoint, IsAModelToo) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  train(model, data, options(path_));
  const Model loaded = Model::load(path_);
  EXPECT_TRUE(same_bits(weights(loaded), weights(model)));
  EXPECT_EQ(loaded.spec().cell, "lstm");
  EXPECT_EQ(loaded.data().labels.classes, data.description().labels.classes);
}

TEST_F(Checkpoint, LimitsAndCadenceMayChange) {
  train_part(options(path_, 20), 10);
  CopyTask data;
  Model model(spec, data.description());
  TrainOptions given = options(path_, 30);
  given.log_every = 100.0;
  given.checkpoint_every = 0.0;
  EXPECT_EQ(train(model, data, given, {}, true).last.step, 30);
}

TEST_F(Checkpoint, RefusesAnotherRun) {
  train_part(options(path_), 5);
  const auto refused = [&](const std::string& message, const ModelSpec& other, const TrainOptions& given) {
    CopyTask data;
    Model model(other, data.description(), 9);
    const std::vector<float> before = weights(model);
    expect_error(ErrorCode::incompatible, path_ + ": checkpoint of another run: " + message,
                 [&] { train(model, data, given, {}, true); });
    EXPECT_TRUE(same_bits(weights(model), before)) << message;
  };
  ModelSpec other = spec;
  other.width = 16;
  refused("model.width is 8 in the checkpoint and 16 in this run", other, options(path_));
  other = spec;
  other.cell = "gru";
  refused("model.cell is \"lstm\" in the checkpoint and \"gru\" in this run", other, options(path_));
  TrainOptions given = options(path_);
  given.learning_rate = 0.5;
  refused("options.learning_rate is 0.003 in the checkpoint and 0.5 in this run", spec, given);
  given = options(path_);
  given.optimizer = Optimizer::sgd;
  refused("options.momentum is null in the checkpoint and 0.9 in this run", spec, given);
  given = options(path_);
  given.seed = 4;
  refused("options.seed is 0 in the checkpoint and 4 in this run", spec, given);

  given = options(path_);
  given.schedule = Schedule::plateau, given.validate_steps = 2;
  train_part(given, 5);
  given.validate_steps = 3;
  refused("options.validate_steps is 2 in the checkpoint and 3 in this run", spec, given);
}

TEST_F(Checkpoint, KeepsAPlateauOfLossesThatWereNotFinite) {
  CopyTask data;
  Model model(spec, data.description(), 1);
  Example first;
  data.next(4, 12, first);
  training::OptimizerState optimizer(options(path_), model.impl().parameters->layout());
  training::RunState state;
  state.step = 9;
  for (int i = 0; i < 6; ++i) state.plateau.note(std::numeric_limits<double>::quiet_NaN());
  ASSERT_EQ(state.plateau.factor, 0.5);
  const nlohmann::json same = nlohmann::json::object();
  training::save_checkpoint(path_, model.impl(), optimizer, state, {}, data, same);
  const training::RunState read = training::load_checkpoint(path_, model.impl(), optimizer, data, same);
  EXPECT_EQ(read.plateau.factor, 0.5);
  EXPECT_EQ(read.plateau.without_gain, 2);
}

TEST_F(Checkpoint, RefusesOtherDataOrNoCheckpoint) {
  train_part(options(path_), 5);
  test::SumTask numbers;
  Model model(spec, numbers.description());
  expect_error(ErrorCode::incompatible, "checkpoint of another run: data.classes is [\"a\",\"b\",\"c\",\"d\"]",
               [&] { train(model, numbers, options(path_), {}, true); });

  CopyTask data;
  Model plain(spec, data.description());
  plain.save(path_);
  expect_error(ErrorCode::incompatible, path_ + ": a model, not a checkpoint",
               [&] { train(plain, data, options(path_), {}, true); });
  expect_error(ErrorCode::io_failure, folder_.path("none"),
               [&] { train(plain, data, options(folder_.path("none")), {}, true); });
}

/// The checkpoint again with one change.
void rewrite(const std::string& path, const std::function<void(std::vector<io::TensorData>&, io::Metadata&)>& change) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  std::vector<io::TensorData> tensors;
  for (const io::TensorInfo& tensor : file.tensors()) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, file.bytes(tensor)});
  }
  io::Metadata metadata = file.metadata();
  change(tensors, metadata);
  io::write_safetensors(path, tensors, metadata);
}

TEST_F(Checkpoint, FromBeforeForecastsCouldStartFromTheLastValueResumes) {
  const std::vector<float> expected = uninterrupted(options(path_));
  train_part(options(path_), 5);
  rewrite(path_, [](std::vector<io::TensorData>&, io::Metadata& metadata) {
    std::string& text = metadata.at("penstock");
    const std::string field = "\"from_last\":false,";
    ASSERT_NE(text.find(field), std::string::npos) << text;
    text.erase(text.find(field), field.size());
  });
  CopyTask data;
  Model model(spec, data.description(), 5);
  train(model, data, options(path_), {}, true);
  EXPECT_TRUE(same_bits(weights(model), expected));
}

TEST_F(Checkpoint, FromBeforeRunsWereGuardedResumes) {
  const std::vector<float> expected = uninterrupted(options(path_));
  train_part(options(path_), 5);
  rewrite(path_, [](std::vector<io::TensorData>& tensors, io::Metadata& metadata) {
    EXPECT_GT(std::erase_if(tensors, [](const auto& tensor) { return tensor.name.starts_with("training.good_"); }), 0u);
    auto fields = nlohmann::json::parse(metadata.at("penstock.training"));
    EXPECT_EQ(fields.erase("guard"), 1u);
    metadata.at("penstock.training") = fields.dump();
  });
  CopyTask data;
  Model model(spec, data.description(), 5);
  train(model, data, options(path_), {}, true);
  EXPECT_TRUE(same_bits(weights(model), expected));
}

TEST_F(Checkpoint, RefusesDamageAndLeavesTheModelAlone) {
  CopyTask data;
  Model model(spec, data.description(), 9);
  const std::vector<float> before = weights(model);
  const auto refused = [&](ErrorCode code, const std::string& message, auto change) {
    train_part(options(path_), 5);
    rewrite(path_, change);
    expect_error(code, message, [&] { train(model, data, options(path_), {}, true); });
    EXPECT_TRUE(same_bits(weights(model), before)) << message;
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::vector<io::TensorData>&, io::Metadata& metadata) {
      std::string& text = metadata.at("penstock.training");
      ASSERT_NE(text.find(from), std::string::npos) << text;
      text.replace(text.find(from), from.size(), to);
    };
  };
  const auto without = [](const std::string& name) {
    return [=](std::vector<io::TensorData>& tensors, io::Metadata&) {
      ASSERT_EQ(std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; }), 1u);
    };
  };
  const ErrorCode bad = ErrorCode::bad_input;
  refused(bad, "penstock.training.step must be an integer, not \"x\"", replace("\"step\":5", "\"step\":\"x\""));
  refused(bad, "penstock.training.step must be 0 to", replace("\"step\":5", "\"step\":-5"));
  refused(bad, "penstock.training.skipped must be 0 to 5, not 6", replace("\"skipped\":0", "\"skipped\":6"));
  refused(bad, "penstock.training.carried_rows is 3, which does not fit",
          replace("\"carried_rows\":4", "\"carried_rows\":3"));
  refused(bad, "penstock.training.updates is missing", replace("\"updates\":5", "\"other\":5"));
  refused(bad, "penstock.training.guard.rate_factor must be in (0, 1], not 2",
          replace("\"rate_factor\":1.0", "\"rate_factor\":2.0"));
  refused(bad, "penstock.training.guard.good.memory.losses must hold as many numbers as norms",
          replace("\"losses\":[],\"norms\":[]},\"step\":0", "\"losses\":[1.5],\"norms\":[]},\"step\":0"));
  refused(ErrorCode::incompatible, "training.good_weights.head.bias", without("training.good_weights.head.bias"));
  refused(bad, "penstock.training is not a JSON object", replace("{\"carried_rows\"", "[\"carried_rows\""));
  refused(ErrorCode::incompatible, "checkpoint format_version is 2, this version of Penstock reads 1",
          replace("\"format_version\":1", "\"format_version\":2"));
  refused(bad, "carried_rows is not 0, but there is no tensor training.state", without("training.state"));
  refused(ErrorCode::incompatible, "training.second_moment.head.weight", without("training.second_moment.head.weight"));
  refused(ErrorCode::incompatible, "head.bias", without("head.bias"));
}

/// While it lives, no file may grow beyond some bytes, as on a full disk; the superuser's neither.
class FullDisk {
 public:
  FullDisk() : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit few{.rlim_cur = 64, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &few);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  sighandler_t handler_;
  rlimit before_{};
};

TEST_F(Checkpoint, AFailedSaveKeepsTheOldOne) {
  train_part(options(path_), 5);
  const std::string before = folder_.read("run.safetensors");
  CopyTask data;
  Model model(spec, data.description(), 1);
  std::vector<std::string> warnings;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const Progress& progress) {
    if (!progress.warning.empty()) warnings.push_back(progress.warning.text());
  };
  const TrainResult result = [&] {
    const FullDisk full;
    return train(model, data, options(path_), callbacks, true);
  }();
  EXPECT_THAT(result.checkpoint_error, testing::HasSubstr(path_));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "no checkpoint: " + result.checkpoint_error);
  EXPECT_EQ(folder_.read("run.safetensors"), before);
}

/// The child's whole life: go on from the checkpoint if there is one, save after every batch. An alarm of its own kills
/// it, in time however late a busy machine lets its parent run.
[[noreturn]] void train_until_killed(const TrainOptions& given, long microseconds) {
  constexpr long second = 1'000'000;
  const itimerval alarm{.it_interval = {}, .it_value = {microseconds / second, microseconds % second}};
  setitimer(ITIMER_REAL, &alarm, nullptr);
  CopyTask data;
  Model model(spec, data.description(), 1);
  train(model, data, given, {}, std::filesystem::exists(given.checkpoint_path));
  _exit(0);
}

TEST_F(Checkpoint, SurvivesBeingKilledAtAnyMoment) {
  TrainOptions given = options(path_, 150);
  given.checkpoint_every = 0.0;
  const std::vector<float> expected = uninterrupted(given);
  Random random(4);
  int kills = 0;
  for (bool finished = false; !finished;) {
    ASSERT_LT(kills, 2000) << "the run makes no progress";
    // From before the first write to behind several of them, and longer lives in the end: a slow disk must not keep the
    // run from finishing.
    const double longest = 20000.0 * (1.0 + kills / 20);
    const long life = static_cast<long>(random.uniform(500.0, longest));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) train_until_killed(given, life);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    finished = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ASSERT_TRUE(finished || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)) << "the child failed on its own";
    kills += finished ? 0 : 1;
    if (std::filesystem::exists(path_)) Model::load(path_);  // throws if it is not whole
  }
  EXPECT_GE(kills, 5);
  EXPECT_TRUE(same_bits(weights(Model::load(path_)), expected));
}

}  // namespace
}  // namespace penstock
