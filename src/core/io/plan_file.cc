
#include <filesystem>
#include <map>
#include <system_error>

#include "base/check.h"
#include "base/environment.h"
#include "base/files/trusted_file.h"
#include "base/quote.h"
#include "io/read_file.h"
#include "penstock/file_writer.h"
#include "penstock/tune.h"
#include "plan/tuning.h"

namespace penstock {
namespace {

constexpr std::uint64_t kMostPlanBytes = std::uint64_t{64} << 20;

struct MachineTuning {
  std::map<std::string, plan::TunedPlan, std::less<>> plans;
  std::vector<plan::NamedCost> costs;
};

/// Returns the text of `file`: the one at `path` or, without a path, the file that plans are read from.
std::string text_before(const std::string& file, const std::string& path) {
  std::string text, problem;
  std::error_code unknown;
  if (path.empty()) {
    text = plan::text_of_plan_file(problem);
    if (!problem.empty()) fail(ErrorCode::io_failure, "{}: {}", file, problem);
  } else if (std::filesystem::is_regular_file(file, unknown)) {  // reading a FIFO would wait for a writer
    text = io::read_file(file, kMostPlanBytes);
  }
  if (!text.empty()) plan::check_plan_file(text, file);
  return text;
}

/// Plans in the cache are trusted if nobody else can write to them.
bool is_in_cache(const std::string& path) { return path.empty() && environment("PENSTOCK_PLANS") == nullptr; }

/// The file of plans, whose folder is made.
std::string file_for_plans(const std::string& path) {
  std::string file = path.empty() ? plans_path() : path;
  require(!file.empty(), "path must be given: there is no folder for plans (set PENSTOCK_CACHE_DIR or HOME)");
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (is_in_cache(path)) {
    make_private_folder(folder.string());
    const std::string problem = who_else_writes(folder.string());
    if (!problem.empty())
      fail(ErrorCode::io_failure, "{}: plans there would not be read: {}", folder.string(), problem);
  } else if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
  }
  if (error) fail(ErrorCode::io_failure, "cannot write '{}': {}", file, error.message());
  return file;
}

}  // namespace

void check_plans(const std::string& path) {
  const std::string file = file_for_plans(path);
  text_before(file, path);
  check_can_write(file);
}

std::string save_plans(const std::vector<TunedWork>& works, const std::string& path,
                       const std::vector<TunedCost>& costs) {
  std::string file = file_for_plans(path);
  std::map<std::string, MachineTuning> by_machine;
  for (const TunedWork& work : works) {
    plan::TunedPlan tuned{.choice = {.rule = work.best.rule, .variables = {}}, .microseconds = work.best.microseconds};
    for (const auto& [name, value] : work.best.variables) tuned.choice.variables.emplace_back(name, value);
    by_machine[work.machine].plans[work.work] = std::move(tuned);
  }
  for (const TunedCost& cost : costs) by_machine[cost.machine].costs.emplace_back(cost.name, cost.after);
  std::string text = text_before(file, path);
  for (const auto& [machine, tuned] : by_machine) text = plan::add_to_tuning(text, machine, tuned.plans, tuned.costs);
  write_file(file, text);
  if (is_in_cache(path)) {  // whatever the umask
    std::error_code ignored;
    constexpr auto others = std::filesystem::perms::group_write | std::filesystem::perms::others_write;
    std::filesystem::permissions(file, others, std::filesystem::perm_options::remove, ignored);
  }
  return file;
}

}  // namespace penstock
