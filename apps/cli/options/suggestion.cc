#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options/options.h"

namespace penstock::cli {
namespace {

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

/// Words of other programs, and their meaning here.
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

}  // namespace

std::string suggestion(const std::string& text, const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const auto& [typed, meant] : other_words) {
    if (text == typed && has(std::string(meant.substr(0, meant.find(' '))))) {
      return fmt::format(", did you mean '{}'?", meant);
    }
  }
  // The nearest word, and its meaning.
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
  // A part of a single name suggests that name: "--rate" suggests "--learning-rate".
  constexpr std::size_t shortest = 3;
  const std::string part = text.substr(dashes);
  const auto holds = [&](const std::string& name) { return name.find(part) != name.npos; };
  if (letters >= shortest && std::count_if(names.begin(), names.end(), holds) == 1) {
    return fmt::format(", did you mean '{}'?", *std::find_if(names.begin(), names.end(), holds));
  }
  return "";
}

}  // namespace penstock::cli
