#include "penstock/description/task.h"

#include "base/names.h"

namespace penstock {

namespace {

constexpr Names<3> names_of_tasks = {"language", "forecast", "classify"};

}  // namespace

std::string_view to_string(Task task) { return name_of(names_of_tasks, task); }
Task parse_task(std::string_view text) { return parse_name<Task>("task", names_of_tasks, text); }

}  // namespace penstock
