#include "options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "units.h"

namespace penstock::cli {
namespace {

[[noreturn]] void misuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

template <class T>
void parse_number(const std::string& option, const std::string& text, const char* kind, T& value) {
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error == std::errc::result_out_of_range) misuse(fmt::format("{} is out of range: {}", option, printable(text)));
  if (error != std::errc() || end != text.data() + text.size()) {
    misuse(fmt::format("{} must be {}, not '{}'", option, kind, printable(text)));
  }
  value = parsed;
}

std::map<const CLI::App*, std::vector<OptionEntry>>& tables() {
  static std::map<const CLI::App*, std::vector<OptionEntry>> all;
  return all;
}

/// Edits (insert, delete, replace, swap of neighbours) that turn a into b.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
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

/// What people type who know other programs, and what they mean by it here.
constexpr std::pair<std::string_view, std::string_view> other_words[] = {
    {"--lr", "--learning-rate"},
    {"--learning_rate", "--learning-rate"},
    {"--rate", "--learning-rate"},
    {"--hidden", "--hidden-size"},
    {"--hidden_size", "--hidden-size"},
    {"--units", "--hidden-size"},
    {"--dim", "--width"},
    {"--d-model", "--width"},
    {"--embedding", "--width"},
    {"--layers", "--blocks"},
    {"--num-layers", "--blocks"},
    {"--num_layers", "--blocks"},
    {"--depth", "--blocks"},
    {"--batch-size", "--batch"},
    {"--batch_size", "--batch"},
    {"--bs", "--batch"},
    {"--seq-len", "--length"},
    {"--seq_len", "--length"},
    {"--bptt", "--length"},
    {"--window", "--length"},
    {"--lookback", "--length"},
    {"--iterations", "--steps"},
    {"--iters", "--steps"},
    {"--max-steps", "--steps"},
    {"--time", "--seconds"},
    {"--num-epochs", "--epochs"},
    {"--temp", "--temperature"},
    {"--gpu", "--device cuda"},
    {"--cuda", "--device cuda"},
    {"--cpu", "--device cpu"},
    {"--dtype", "--precision"},
    {"--fp16", "--precision f16"},
    {"--bf16", "--precision bf16"},
    {"--half", "--precision f16"},
    {"--out", "--output"},
    {"--save", "--output"},
    {"--model", "--cell"},
    {"--rnn", "--cell"},
    {"--type", "--cell"},
    {"--wd", "--weight-decay"},
    {"--grad-clip", "--clip"},
    {"--clip-grad", "--clip"},
    {"--opt", "--optimizer"},
    {"--optim", "--optimizer"},
    {"--optimiser", "--optimizer"},
    {"--sep", "--delimiter"},
    {"--separator", "--delimiter"},
    {"--target", "--target-columns"},
    {"--targets", "--target-columns"},
    {"--features", "--columns"},
    {"--inputs", "--columns"},
    {"--label", "--label-column"},
    {"--id", "--sequence-column"},
    {"--forecast", "--horizon"},
    {"--ahead", "--horizon"},
    {"--val-split", "--validation-fraction"},
    {"--validation-split", "--validation-fraction"},
    {"--val", "--validation-fraction"},
    {"--max-tokens", "--bytes"},
    {"--tokens", "--bytes"},
    {"--num", "--bytes"},
    {"--chars", "--bytes"},
    {"--workers", "--threads"},
    {"--jobs", "--threads"},
    {"--log", "--metrics"},
    {"--overwrite", "--force"},
    {"--continue", "--resume"},
    {"--restart", "--resume"},
    {"--random-seed", "--seed"},
    {"--silent", "--quiet"},
    {"--na", "--missing"},
    {"--no-last", "--no-changes"},
    {"--gaps", "--irregular"},
    {"--fill", "--irregular fill"},
    {"--freq", "--irregular"},
    {"--frequency", "--irregular"},
    {"--by", "--group"},
    {"--series-id", "--group"},
    {"--exog", "--known"},
    {"--covariates", "--known"},
    {"--future", "--known"},
    {"--seasonality", "--season"},
    {"--period", "--season"},
    {"--intervals", "--quantiles"},
    {"--ensemble", "--seeds"},
    {"--finetune", "--init"},
    {"--fine-tune", "--init"},
    {"--pretrained", "--init"},
    {"--early-stopping", "--patience"},
    {"--hpo", "--search"},
    {"--output-file", "--output"},
    {"fit", "train"},
    {"learn", "train"},
    {"sample", "generate"},
    {"write", "generate"},
    {"complete", "generate"},
    {"forecast", "predict"},
    {"classify", "predict"},
    {"infer", "predict"},
    {"run", "predict"},
    {"onnx", "export"},
    {"convert", "export"},
    {"score", "evaluate"},
    {"test", "evaluate"},
    {"eval", "evaluate"},
    {"serve", "stream"},
    {"benchmark", "bench"},
    {"show", "info"},
    {"describe", "info"},
    {"inspect", "info"},
    {"list", "info"},
    {"solve", "csp"},
    {"completions", "completion"},
};

/// What people look for that is no verb.
std::string where_else(const std::string& verb) {
  if (verb != "torchscript" && verb != "pt2") return "";
  return ": 'penstock export' writes ONNX, and penstock.torch.SequenceModel in Python reads a model for torch.export";
}

}  // namespace

std::string suggestion(const std::string& text, const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const auto& [typed, meant] : other_words) {
    if (text == typed && has(std::string(meant.substr(0, meant.find(' '))))) {
      return fmt::format(", did you mean '{}'?", meant);
    }
  }
  // What is nearest, and what it means.
  std::vector<std::pair<std::string_view, std::string_view>> words;
  for (const std::string& name : names) words.emplace_back(name, name);
  for (const auto& [typed, meant] : other_words) {
    if (has(std::string(meant.substr(0, meant.find(' '))))) words.emplace_back(typed, meant);
  }
  const auto closest =
      std::ranges::min_element(words, {}, [&](const auto& word) { return distance(text, word.first); });
  const std::size_t dashes = text.starts_with("--") ? 2 : 0;
  const std::size_t letters = text.size() - dashes;
  if (closest != words.end() && distance(text, closest->first) <= std::max<std::size_t>(1, letters / 3)) {
    return fmt::format(", did you mean '{}'?", closest->second);
  }
  // What was typed may be part of the one name that holds it: "--rate" of "--learning-rate".
  constexpr std::size_t shortest = 3;
  const std::string part = text.substr(dashes);
  const auto holds = [&](const std::string& name) { return name.find(part) != name.npos; };
  if (letters >= shortest && std::count_if(names.begin(), names.end(), holds) == 1) {
    return fmt::format(", did you mean '{}'?", *std::find_if(names.begin(), names.end(), holds));
  }
  return "";
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
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
  if (app.get_parent() == nullptr) return "penstock VERB [options]";
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
  for (const std::string& name : CLI::detail::split(text, ',')) {
    if (name.empty())
      misuse(fmt::format("{} must be names with commas between them, not '{}'", option, printable(text)));
    value.push_back(name);
  }
  if (value.empty()) misuse(fmt::format("{} must name at least one column", option));
}

void parse_value(const std::string& option, const std::string& text, std::vector<double>& value) {
  value.clear();
  for (const std::string& number : CLI::detail::split(text, ',')) parse_value(option, number, value.emplace_back());
}

void fail_choice(const std::string& option, const std::string& text, const std::vector<std::string>& names) {
  misuse(fmt::format("{} must be one of {}, not '{}'", option, fmt::join(names, ", "), printable(text)));
}

CLI::Option* Options::declare(CLI::Option* option) {
  // As everywhere else in Unix, the last one counts.
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->group(group_);
}

std::pair<Index, Index> parse_rows_and_steps(const std::string& option, const std::string& text) {
  const std::size_t cross = text.find('x');
  if (cross == std::string::npos) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} must be BxT, rows and steps such as 64x512, not '{}'", option, printable(text)));
  }
  Index rows = 0, steps = 0;
  parse_value(option, text.substr(0, cross), rows);
  parse_value(option, text.substr(cross + 1), steps);
  return {rows, steps};
}

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
  const auto parse = [&value, automatic](const std::string& text) {
    const bool is_auto = automatic != nullptr && text == "auto";
    if (automatic != nullptr) *automatic = is_auto;
    value.device = is_auto ? Device::cpu() : parse_device(text);
  };
  std::string help = "Where the model computes: the CPU or an NVIDIA GPU, the first one if it has no number";
  if (automatic != nullptr) help += "; auto: where it takes less time by estimate, which a line explains";
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
          {"f16", Precision::f16}},
         "How numbers are multiplied. CPU: f32, and of the recurrent layers bf16-weights (rounded to 8 bits) or bf16 "
         "(all factors are). GPU: f32, bf16 or f16, of all layers and of what lies between them [" +
             precision + "]");
}

void Options::finish(const std::string& examples) {
  if (app_.get_parent() != nullptr) {
    CLI::Option* file = declare(app_.add_option("--config",
                                                "Take options from here: lines such as 'width = 64', see "
                                                "--print-config; what is given as well counts instead"));
    file->option_text("FILE");
    enter({.option = file});
    CLI::Option* print = app_.add_flag_callback(
        "--print-config", [] {},
        "Print the options and their values as such a file, those that were not given as comments, and end");
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

std::string help_text(const CLI::App& app) {
  constexpr std::size_t width = 80;
  std::string out;
  for (const std::string& line : wrap(app.get_description(), width)) out += line + "\n";
  out += "\nUsage: " + usage_line(app) + "\n";
  const auto positionals = app.get_options([](const CLI::Option* o) { return o->get_positional(); });
  if (!positionals.empty()) out += '\n';
  for (const CLI::Option* option : positionals) list_entry(out, option->get_option_text(), option->get_description());
  if (const auto verbs = verbs_of(app); !verbs.empty()) {
    out += "\nVerbs:\n";
    for (const CLI::App* verb : verbs) list_entry(out, verb->get_name(), verb->get_description());
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

void refuse_extras(const CLI::App& app) {
  const auto extras = app.remaining();
  if (extras.empty()) return;
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& extra) { return extra.size() > 1 && extra[0] == '-'; });
  if (option != extras.end()) {
    const std::string name = option->substr(0, option->find('='));
    misuse(fmt::format("there is no option '{}'{}", printable(name), suggestion(name, option_names(app))));
  }
  if (app.get_parent() != nullptr) misuse(fmt::format("one argument too many: '{}'", printable(extras.front())));
  std::vector<std::string> verbs;
  for (const CLI::App* verb : verbs_of(app)) verbs.push_back(verb->get_name());
  std::string hint = where_else(extras.front());
  if (hint.empty()) hint = suggestion(extras.front(), verbs);
  if (hint.empty()) hint = fmt::format(", only {}", fmt::join(verbs, ", "));
  misuse(fmt::format("there is no verb '{}'{}", printable(extras.front()), hint));
}

std::string parse_message(const CLI::ParseError& error) {
  std::string text = printable(error.what());
  // "--width: 1 required TEXT missing"
  if (error.get_name() == "ArgumentMismatch" && text.find(" missing") != std::string::npos) {
    return text.substr(0, text.find(':')) + " needs a value";
  }
  return text;
}

std::string with_options(const CLI::App& app, const std::string& text) {
  const auto names = option_names(app);
  constexpr std::string_view mention = "the option '";
  std::string replaced = text;
  for (std::size_t begin = 0; (begin = replaced.find(mention, begin)) != replaced.npos; ++begin) {
    const std::size_t name = begin + mention.size(), end = replaced.find('\'', name);
    if (end == replaced.npos) break;
    const std::string option = "--" + replaced.substr(name, end - name);
    if (std::find(names.begin(), names.end(), option) != names.end()) replaced.replace(begin, end + 1 - begin, option);
  }
  return replaced;
}

std::string in_terms_of_options(const CLI::App& app, const std::string& message) {
  static const std::map<std::string, std::string> other_names = {
      {"convolution", "--conv"},       {"feed_forward", "--ffn"},     {"inputs", "--columns"},
      {"targets", "--target-columns"}, {"max_steps", "--steps"},      {"max_seconds", "--seconds"},
      {"max_epochs", "--epochs"},      {"metrics_path", "--metrics"}, {"checkpoint_path", "--checkpoint"},
  };
  std::string replaced = with_options(app, message);
  if (replaced != message) return replaced;
  const auto names = option_names(app);
  const std::string field = message.substr(0, message.find_first_of(" :,"));
  std::string option = "--" + field;
  std::replace(option.begin(), option.end(), '_', '-');
  if (const auto other = other_names.find(field); other != other_names.end()) option = other->second;
  if (std::find(names.begin(), names.end(), option) == names.end()) return message;
  return option + message.substr(field.size());
}

}  // namespace penstock::cli
