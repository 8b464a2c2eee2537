#pragma once

#include <CLI/CLI.hpp>
#include <functional>

/// One file a verb; each adds itself to the program.
namespace penstock::cli {

struct Verb {
  CLI::App* app;
  std::function<int()> run;  ///< Returns the exit status; throws Error and ClosedPipe.
};

Verb add_train(CLI::App& program);
Verb add_generate(CLI::App& program);
Verb add_predict(CLI::App& program);
Verb add_evaluate(CLI::App& program);
Verb add_report(CLI::App& program);
Verb add_export(CLI::App& program);
Verb add_stream(CLI::App& program);
Verb add_bench(CLI::App& program);
Verb add_info(CLI::App& program);
Verb add_profile(CLI::App& program);
Verb add_csp(CLI::App& program);
Verb add_plan(CLI::App& program);
Verb add_why(CLI::App& program);
Verb add_tune(CLI::App& program);
Verb add_demo(CLI::App& program);
Verb add_completion(CLI::App& program);
Verb add_man(CLI::App& program);

}  // namespace penstock::cli
