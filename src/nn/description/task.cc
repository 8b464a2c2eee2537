#include "penstock/description/task.h"

#include "base/names.h"

namespace penstock {

namespace {

constexpr Names<3> task_names = {"language", "forecast", "classify"};

}  // namespace

std::string_view to_string(Task task) { return name_of(task_names, task); }

}  // namespace penstock
