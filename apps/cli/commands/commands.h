#pragma once

#include <CLI/CLI.hpp>
#include <functional>

/// One file a command; each adds itself to the program.
namespace penstock::cli {

struct Command {
  CLI::App* app;
  std::function<int()> run;  ///< Returns the exit status; throws Error and ClosedPipe.
};

Command add_train(CLI::App& program);
Command add_generate(CLI::App& program);
Command add_predict(CLI::App& program);
Command add_evaluate(CLI::App& program);
Command add_report(CLI::App& program);
Command add_export(CLI::App& program);
Command add_quantize(CLI::App& program);
Command add_import(CLI::App& program);
Command add_stream(CLI::App& program);
Command add_bench(CLI::App& program);
Command add_info(CLI::App& program);
Command add_profile(CLI::App& program);
Command add_csp(CLI::App& program);
Command add_plan(CLI::App& program);
Command add_why(CLI::App& program);
Command add_tune(CLI::App& program);
Command add_demo(CLI::App& program);
Command add_completion(CLI::App& program);
Command add_man(CLI::App& program);

}  // namespace penstock::cli
