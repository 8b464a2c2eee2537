#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/error.h"
#include "penstock/types.h"

/// The options of a command: how they are declared, parsed and reported. Ranges are the library's business, which names
/// its own settings; `option_words` has our names for those.
namespace penstock::cli {

// Read the text of an option; throw Error(invalid_argument) "--width must be a whole number, not 'x'".
void parse_value(const std::string& option, const std::string& text, Index& value);
void parse_value(const std::string& option, const std::string& text, int& value);
void parse_value(const std::string& option, const std::string& text, std::uint64_t& value);
void parse_value(const std::string& option, const std::string& text, double& value);
void parse_value(const std::string& option, const std::string& text, std::string& value);
/// "a,b,c"
void parse_value(const std::string& option, const std::string& text, std::vector<std::string>& value);
/// "0.1,0.5,0.9"
void parse_value(const std::string& option, const std::string& text, std::vector<double>& value);
/// The numbers of a --shape such as "16x1024x256x512"; `names`, such as "BxTxIxH", say what they are. Throws
/// Error(invalid_argument) for another number of them.
std::vector<Index> parse_sizes(const std::string& text, const std::string& names);
template <class T>
void parse_value(const std::string& option, const std::string& text, std::optional<T>& value) {
  T plain{};
  parse_value(option, text, plain);
  value = std::move(plain);
}

/// Returns the default of an option as its help shows it; empty where there is none.
std::string default_text(const auto& value) {
  constexpr bool is_plain = std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>;
  if constexpr (is_plain || std::is_convertible_v<decltype(value), std::string>) {
    const std::string text = fmt::format("{}", value);
    return text.empty() ? "" : " [" + text + "]";
  }
  return "";
}

// Returns the text of a value in a configuration file; empty if it is not set.
std::string config_text(const auto& value) { return fmt::format("{}", value); }
template <class T>
std::string config_text(const std::vector<T>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
template <class T>
std::string config_text(const std::optional<T>& value) {
  return value ? config_text(*value) : "";
}

/// An option as completions and configuration files see it.
struct OptionEntry {
  const CLI::Option* option;
  bool is_flag = false;
  std::vector<std::string> choices = {};    ///< Empty: any value.
  std::function<std::string()> value = {};  ///< As it is now; nothing for --help and the like.
  std::string setting = {};                 ///< Name of the setting in the library, where it is not that of the option.

  /// "learning-rate"
  std::string name() const { return option->get_lnames().front(); }
  /// Returns whether its value is a file.
  bool is_file() const { return option->get_option_text() == "FILE"; }
};

/// The options of a command in the order of its help.
const std::vector<OptionEntry>& option_table(const CLI::App& app);

class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}

  /// The heading under which the help lists the options that follow.
  void group(std::string name) { group_ = std::move(name); }

  /// An argument without a name, "[NAME]" if it may be left out; the command itself checks that it is there (see
  /// require_given).
  void positional(const std::string& name, std::string& value, const std::string& help);
  void positional(const std::string& name, std::vector<std::string>& values, const std::string& help);

  /// `name` as CLI11 writes it ("-o,--output"); `value` holds the default, which the help shows.
  template <class T>
  void add(const std::string& name, T& value, const std::string& placeholder, const std::string& help) {
    const std::string shown = long_name(name);
    CLI::Option* option = declare(app_.add_option_function<std::string>(
        name, [&value, shown](const std::string& text) { parse_value(shown, text, value); },
        help + default_text(value)));
    option->option_text(placeholder);
    enter({.option = option, .value = [&value] { return config_text(value); }});
  }

  /// One of a few names.
  template <class E>
  void choice(const std::string& name, E& value, std::vector<std::pair<std::string, std::type_identity_t<E>>> all,
              const std::string& help) {
    std::vector<std::string> names;
    for (const auto& [text, meaning] : all) names.push_back(text);
    const auto parse = [&value, all, names, shown = long_name(name)](const std::string& text) {
      for (const auto& [choice, meaning] : all) {
        if (choice == text) {
          value = meaning;
          return;
        }
      }
      fail_choice(shown, text, names);
    };
    CLI::Option* option = declare(app_.add_option_function<std::string>(name, parse, help));
    option->option_text(fmt::format("{}", fmt::join(names, "|")));
    const auto shown_value = [&value, all] {
      const auto is_it = [&](const auto& choice) { return E(choice.second) == value; };
      const auto found = std::find_if(all.begin(), all.end(), is_it);
      return found == all.end() ? std::string() : found->first;
    };
    enter({.option = option, .choices = names, .value = shown_value});
  }

  void flag(const std::string& name, bool& value, const std::string& help);
  /// Names the setting of the library that the option before gives, for messages, where their names differ.
  void gives(const std::string& setting);
  /// --device and --precision. `automatic`: becomes true with --device auto, which the command decides once it knows
  /// the work (resolve_device); null: it does not know it. `precision`: what the help says of its default.
  void device(Execution& value, bool* automatic = nullptr, const std::string& precision = "f32");

  /// Ends the list with --help; `examples` are the last lines of the help.
  void finish(const std::string& examples);

 private:
  CLI::Option* declare(CLI::Option* option);
  void enter(OptionEntry entry);
  static std::string long_name(const std::string& name);

  CLI::App& app_;
  std::string group_ = "Options";
};

/// Throws Error(invalid_argument) "MODEL is missing" for a positional argument that was not given.
void require_given(const std::string& value, const std::string& name);
/// Throws Error(invalid_argument) "--cell is for a layer" about the first of these options that was given; `why` begins
/// with a verb.
void refuse_given(const CLI::App& app, const std::vector<const char*>& options, std::string_view why);
/// The same for every option but these.
void refuse_others(const CLI::App& app, const std::vector<std::string>& options, std::string_view why);

/// ", did you mean 'x'?" for a name that is close to what was typed, or that people mean by it; empty if there is none.
std::string suggestion(const std::string& text, const std::vector<std::string>& names);
/// "--width", ... of a command.
std::vector<std::string> option_names(const CLI::App& app);
/// Breaks a text into lines of at most `width` characters.
std::vector<std::string> wrap(const std::string& text, std::size_t width);
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);
/// "penstock train DATA... [options]"
std::string usage_line(const CLI::App& app);

/// The command's help: what it does, its usage, its options by group, its examples.
std::string help_text(const CLI::App& app);

/// Throws Error(invalid_argument) for arguments that nobody took, with what may have been meant.
void refuse_extras(const CLI::App& app);
/// Throws Error(invalid_argument) "one argument too many: 'x'", with the option that it may be the value of.
[[noreturn]] void refuse_argument(const CLI::App& app, const std::string& text);

/// One line, in our words, for what CLI11 found wrong.
std::string parse_message(const CLI::ParseError& error);

/// Returns the option of a setting that has its name: "--group shop" for ("group", "shop").
std::string option_named(const std::string& setting, const std::string& value = {});
/// Returns the options of a command as words for the library's settings.
SettingWords option_words(const CLI::App& app);

}  // namespace penstock::cli
