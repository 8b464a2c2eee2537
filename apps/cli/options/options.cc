#include "options/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "penstock/plan.h"
#include "terminal/units.h"

namespace penstock::cli {
namespace {

[[noreturn]] void misuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// Returns the number that a person may mean: 1000 by "1e3", "1,000", "1_000" and "1k", 0.2 by "20%".
template <class T>
std::string number_meant(std::string text) {
  double factor = 1.0;
  constexpr double kilo = 1e3, mega = 1e6, percent = 0.01;
  if (text.ends_with('k') || text.ends_with('K')) factor = kilo;
  if (text.ends_with('M')) factor = mega;
  if (text.ends_with('%')) factor = percent;
  if (factor != 1.0) text.pop_back();
  std::erase_if(text, [](char c) { return c == ',' || c == '_'; });
  if (text.starts_with('+')) text.erase(0, 1);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits = error == std::errc() && end == text.data() + text.size() && std::isfinite(value * factor);
  constexpr double most = 1e15;  // that a double counts exactly
  const bool whole = fits && value * factor == std::round(value * factor) && std::abs(value * factor) < most;
  if (!fits || (std::is_integral_v<T> && !whole) || (std::is_unsigned_v<T> && value < 0.0)) return "";
  return whole ? fmt::format("; did you mean {:.0f}?", value * factor)
               : fmt::format("; did you mean {:g}?", value * factor);
}

template <class T>
void parse_number(const std::string& option, const std::string& text, const char* kind, T& value) {
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error == std::errc::result_out_of_range) misuse(fmt::format("{} is out of range: {}", option, printable(text)));
  if (error != std::errc() || end != text.data() + text.size()) {
    misuse(fmt::format("{} must be {}, not '{}'{}", option, kind, printable(text), number_meant<T>(text)));
  }
  value = parsed;
}

std::map<const CLI::App*, std::vector<OptionEntry>>& tables() {
  static std::map<const CLI::App*, std::vector<OptionEntry>> all;
  return all;
}

bool is_finite_number(const std::string& text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

/// "0.1,0.9" for the numbers of "0.1-0.9", "0.1:0.9", "[0.1, 0.9]" and the like; empty where there are none.
std::string with_commas_between(const std::string& text) {
  constexpr std::string_view separators = " \t,;:-/|[](){}";
  std::vector<std::string> numbers;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(separators, begin)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    numbers.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  if (!std::ranges::all_of(numbers, is_finite_number)) return "";
  return fmt::format("{}", fmt::join(numbers, ","));
}

/// Returns whether `text` names one of the chips that --chip knows: "h100" for "H100 (sm_90)".
bool names_chip(const std::string& text) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::ranges::any_of(chips(), [&](const std::string& chip) {
    return std::ranges::equal(text, chip.substr(0, chip.find(" (")), same);
  });
}

/// A device; names of chips, which --chip takes where there is such an option, are told apart from those that are none.
Device parse_device_of(const CLI::App& app, const std::string& text) {
  if (!names_chip(text)) return parse_device(text);
  const bool plans = app.get_option_no_throw("--chip") != nullptr;
  misuse(fmt::format("--device must be cpu, cuda or cuda:N, not '{}'; {}", text,
                     plans ? "'--chip " + shell_word(text) + "' plans for one" : "a GPU is 'cuda'"));
}

/// Returns the option that a surplus argument may be the value of: "; did you mean '-o out.onnx'?".
std::string option_for(const CLI::App& app, const std::string& text) {
  const auto has = [&](const char* option) { return app.get_option_no_throw(option) != nullptr; };
  if (is_finite_number(text) && has("--quantiles") && app.count("--quantiles") > 0) {
    return "; a list has commas and no blanks, such as --quantiles 0.1,0.5,0.9";
  }
  const char* option = has("--prompt") ? "--prompt" : has("--output") ? "-o" : nullptr;
  // A file that exists may be meant as further data.
  const bool is_there = has("DATA") && std::filesystem::exists(std::filesystem::path(text));
  if (option == nullptr || is_there) return "";
  return fmt::format("; did you mean '{} {}'?", option, shell_word(text));
}

void list_entry(std::string& out, const std::string& name, const std::string& text) {
  constexpr std::size_t indent = 26, width = 80;
  out += "  " + name;
  std::size_t column = name.size() + 2;
  if (column + 2 > indent) {
    out += '\n';
    column = 0;
  }
  for (const std::string& line : wrap(text, width - indent)) {
    out += std::string(indent - column, ' ') + line + '\n';
    column = 0;
  }
}

/// Returns a hint for an option that is an argument without a name here: a file, or the command itself.
std::string without_option(const CLI::App& app, const std::string& name) {
  if (app.get_parent() == nullptr) {
    for (const CLI::App* command : commands_of(app)) {
      if (name == "--" + command->get_name()) return fmt::format(", did you mean '{}'?", command->get_name());
    }
    return "";
  }
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, name) != words.end();
  };
  if (app.get_name() == "train" && is_one_of({"--search", "--hpo", "--tune"})) {
    return ": examples/search_settings.py searches settings with Optuna";
  }
  const bool data = is_one_of({"--data", "--dataset", "--file", "--input", "--csv", "--train-data", "-d", "-f", "-i"});
  const bool model = is_one_of({"--model", "-m", "--checkpoint", "--weights"});
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    const std::string positional = option->get_name(true);
    if ((data && positional == "DATA") || (model && positional == "MODEL")) {
      return fmt::format(": give {} without an option, '{}'", positional, usage_line(app));
    }
  }
  return "";
}

/// The command that has an option which this one has not, 'penstock train' before others.
std::string where_option_is(const CLI::App& app, const std::string& name) {
  if (app.get_parent() == nullptr || !name.starts_with("--")) return "";
  for (const CLI::App* command : commands_of(*app.get_parent())) {
    if (command->get_option_no_throw(name) != nullptr)
      return fmt::format("; it is an option of 'penstock {}'", command->get_name());
  }
  return "";
}

/// Returns a hint for commands that people look for and that do not exist.
std::string where_else(const std::string& command) {
  if (command != "torchscript" && command != "pt2") return "";
  return ": 'penstock export' writes ONNX, and penstock.torch.SequenceModel in Python reads a model for torch.export";
}

}  // namespace

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> wrap(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string usage_line(const CLI::App& app) {
  if (app.get_parent() == nullptr) return "penstock COMMAND [options]";
  std::string line = "penstock " + app.get_name();
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    line += " " + option->get_option_text();
  }
  return line + " [options]";
}

void parse_value(const std::string& option, const std::string& text, Index& value) {
  parse_number(option, text, "a whole number", value);
}

void parse_value(const std::string& option, const std::string& text, int& value) {
  parse_number(option, text, "a whole number", value);
}

void parse_value(const std::string& option, const std::string& text, std::uint64_t& value) {
  parse_number(option, text, "a whole number from 0", value);
}

void parse_value(const std::string& option, const std::string& text, double& value) {
  parse_number(option, text, "a number", value);
  if (!std::isfinite(value)) misuse(fmt::format("{} must be a finite number, not '{}'", option, text));
}

void parse_value(const std::string&, const std::string& text, std::string& value) { value = text; }

void parse_value(const std::string& option, const std::string& text, std::vector<std::string>& value) {
  value.clear();
  for (const std::string& part : CLI::detail::split(text, ',')) {
    const std::string name = CLI::detail::trim_copy(part);  // as names in a header are read
    if (name.empty())
      misuse(fmt::format("{} must be names with commas between them, not '{}'", option, printable(text)));
    value.push_back(name);
  }
  if (value.empty()) misuse(fmt::format("{} must name at least one column", option));
}

void parse_value(const std::string& option, const std::string& text, std::vector<double>& value) {
  value.clear();
  const std::vector<std::string> parts = CLI::detail::split(text, ',');
  if (!parts.empty() && std::ranges::all_of(parts, is_finite_number)) {
    for (const std::string& number : parts) parse_value(option, number, value.emplace_back());
    return;
  }
  const std::string meant = with_commas_between(text);
  misuse(fmt::format("{} must be numbers with commas between them, such as {}, not '{}'", option,
                     meant.empty() ? "0.1,0.5,0.9" : meant, printable(text)));
}

CLI::Option* Options::declare(CLI::Option* option) {
  // The last of several values counts, as usual in Unix.
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->group(group_);
}

std::vector<Index> parse_sizes(const std::string& text, const std::string& names) {
  std::vector<Index> sizes;
  std::size_t at = 0;
  while (at != std::string::npos) {
    const std::size_t cross = text.find('x', at);
    parse_value("--shape", text.substr(at, cross == std::string::npos ? cross : cross - at), sizes.emplace_back());
    at = cross == std::string::npos ? cross : cross + 1;
  }
  const auto wanted = static_cast<std::size_t>(std::count(names.begin(), names.end(), 'x')) + 1;
  if (sizes.size() != wanted) {
    const char* const example = names == "BxT" ? ", rows and steps such as 64x512" : "";
    fail(ErrorCode::invalid_argument, "--shape must be {}{}, not '{}'", names, example, printable(text));
  }
  return sizes;
}

void Options::gives(const std::string& setting) { tables()[&app_].back().setting = setting; }

void Options::enter(OptionEntry entry) { tables()[&app_].push_back(std::move(entry)); }

const std::vector<OptionEntry>& option_table(const CLI::App& app) { return tables()[&app]; }

std::string Options::long_name(const std::string& name) { return name.substr(name.find("--")); }

void Options::positional(const std::string& name, std::string& value, const std::string& help) {
  const bool bracketed = name.front() == '[';
  app_.add_option(bracketed ? name.substr(1, name.size() - 2) : name, value, help)->option_text(name);
}

void Options::positional(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  app_.add_option(name, values, help)->option_text(name + "...");
}

void Options::flag(const std::string& name, bool& value, const std::string& help) {
  CLI::Option* option = app_.add_flag_callback(
      name, [&value] { value = true; }, help);
  option->group(group_);
  enter({.option = option, .is_flag = true, .value = [&value] { return std::string(value ? "true" : "false"); }});
}

void Options::device(Execution& value, bool* automatic, const std::string& precision) {
  const auto parse = [this_app = &app_, &value, automatic](const std::string& text) {
    const bool is_auto = automatic != nullptr && text == "auto";
    if (automatic != nullptr) *automatic = is_auto;
    value.device = is_auto ? Device::cpu() : parse_device_of(*this_app, text);
  };
  std::string help = "The device that computes: the CPU, or an NVIDIA GPU: cuda is the first, cuda:1 the second";
  if (automatic != nullptr) help += "; auto: the faster one by estimate, and a line says why";
  CLI::Option* device = declare(app_.add_option_function<std::string>("--device", parse, help + " [cpu]"));
  device->option_text(automatic != nullptr ? "cpu|cuda[:N]|auto" : "cpu|cuda[:N]");
  std::vector<std::string> choices = {"cpu", "cuda"};
  if (automatic != nullptr) choices.emplace_back("auto");
  const auto shown = [&value, automatic] {
    return automatic != nullptr && *automatic ? std::string("auto") : to_string(value.device);
  };
  enter({.option = device, .choices = std::move(choices), .value = shown});
  choice("--precision", value.precision,
         {{"f32", Precision::full},
          {"full", Precision::full},
          {"bf16-weights", Precision::bf16_weights},
          {"bf16", Precision::bf16},
          {"f16", Precision::f16},
          {"tf32", Precision::tf32}},
         "Precision of matrix products. full is f32. CPU: bf16-weights rounds the weights of recurrent layers to "
         "bfloat16, bf16 their inputs too. GPU: bf16 or f16 for all layers and the values between them; tf32: f32 "
         "whose products may round their factors to 10 bits of mantissa [" +
             precision + "]");
}

void Options::finish(const std::string& examples) {
  if (app_.get_parent() != nullptr) {
    CLI::Option* file = declare(app_.add_option("--config",
                                                "Read options from this file: lines such as 'width = 64', as "
                                                "--print-config writes them. The command line takes precedence"));
    file->option_text("FILE");
    enter({.option = file});
    CLI::Option* print = app_.add_flag_callback(
        "--print-config", [] {},
        "Print all options in the format of --config, those that were not given as comments, and exit");
    print->group(group_);
    enter({.option = print, .is_flag = true});
  }
  CLI::Option* help = app_.set_help_flag("-h,--help", "Show this help");
  help->group(group_);
  enter({.option = help, .is_flag = true});
  app_.footer("Examples:\n" + examples);
  app_.allow_extras();  // refuse_extras has better words for them
}

void require_given(const std::string& value, const std::string& name) {
  if (value.empty()) misuse(name + " is missing");
}

void refuse_given(const CLI::App& app, const std::vector<const char*>& options, std::string_view why) {
  for (const char* const option : options) {
    if (app.count(option) > 0) fail(ErrorCode::invalid_argument, "{} {}", option, why);
  }
}

void refuse_others(const CLI::App& app, const std::vector<std::string>& options, std::string_view why) {
  for (const std::string& option : option_names(app)) {
    if (std::ranges::find(options, option) == options.end()) refuse_given(app, {option.c_str()}, why);
  }
}

std::string help_text(const CLI::App& app) {
  constexpr std::size_t width = 80;
  std::string out;
  for (const std::string& line : wrap(app.get_description(), width)) out += line + "\n";
  out += "\nUsage: " + usage_line(app) + "\n";
  const auto positionals = app.get_options([](const CLI::Option* o) { return o->get_positional(); });
  if (!positionals.empty()) out += '\n';
  for (const CLI::Option* option : positionals) list_entry(out, option->get_option_text(), option->get_description());
  if (const auto commands = commands_of(app); !commands.empty()) {
    out += "\nCommands:\n";
    for (const CLI::App* command : commands) list_entry(out, command->get_name(), command->get_description());
  }
  for (const std::string& group : app.get_groups()) {
    const auto options = app.get_options(
        [&](const CLI::Option* option) { return option->get_group() == group && !option->get_positional(); });
    if (options.empty()) continue;
    out += "\n" + group + ":\n";
    for (const CLI::Option* option : options) {
      const std::string placeholder = option->get_option_text();
      list_entry(out,
                 fmt::format("{}", fmt::join(CLI::detail::split(option->get_name(false, true), ','), ", ")) +
                     (placeholder.empty() ? "" : " " + placeholder),
                 option->get_description());
    }
  }
  return out + "\n" + app.get_footer() + "\n";
}

void refuse_argument(const CLI::App& app, const std::string& text) {
  misuse(fmt::format("one argument too many: '{}'{}", printable(text), option_for(app, text)));
}

void refuse_extras(const CLI::App& app) {
  const auto extras = app.remaining();
  if (extras.empty()) return;
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& extra) { return extra.size() > 1 && extra[0] == '-'; });
  if (option != extras.end()) {
    const std::string name = option->substr(0, option->find('='));
    std::string hint = without_option(app, name);
    if (hint.empty()) hint = suggestion(name, option_names(app));
    if (hint.empty()) hint = where_option_is(app, name);
    misuse(fmt::format("there is no option '{}'{}", printable(name), hint));
  }
  if (app.get_parent() != nullptr) refuse_argument(app, extras.front());
  const std::vector<std::string> commands = command_names(app);
  std::string hint = where_else(extras.front());
  if (hint.empty()) hint = suggestion(extras.front(), commands);
  if (hint.empty()) hint = fmt::format(", only {}", fmt::join(commands, ", "));
  misuse(fmt::format("there is no command '{}'{}", printable(extras.front()), hint));
}

std::string parse_message(const CLI::ParseError& error) {
  std::string text = printable(error.what());
  // "--width: 1 required TEXT missing"
  if (error.get_name() == "ArgumentMismatch" && text.find(" missing") != std::string::npos) {
    return text.substr(0, text.find(':')) + " needs a value";
  }
  return text;
}

std::string option_named(const std::string& setting, const std::string& value) {
  std::string option = "--" + setting;
  std::replace(option.begin(), option.end(), '_', '-');
  return value.empty() ? option : option + " " + shell_word(value);
}

SettingWords option_words(const CLI::App& app) {
  return [&app](const std::string& setting, const std::string& value) -> std::string {
    for (const OptionEntry& entry : option_table(app)) {
      const bool named = entry.setting.empty() && "--" + entry.name() == option_named(setting);
      if (named || entry.setting == setting) return option_named(entry.name(), value);
    }
    return {};
  };
}

}  // namespace penstock::cli
