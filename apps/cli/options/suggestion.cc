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

/// Meanings here, and the words of other programs for them. With '_' for '-', a word is near enough to be found.
constexpr std::pair<const char*, const char*> meanings[] = {
    {"--learning-rate", "--lr --rate"},
    {"--hidden-size", "--hidden --units"},
    {"--width", "--dim --d-model --embedding"},
    {"--blocks", "--layers --num-layers --depth"},
    {"--batch", "--batch-size --bs"},
    {"--length", "--seq-len --bptt --window --lookback"},
    {"--steps", "--iterations --iters --max-steps"},
    {"--seconds", "--time"},
    {"--epochs", "--num-epochs"},
    {"--temperature", "--temp"},
    {"--device cuda", "--gpu --cuda"},
    {"--device cpu", "--cpu"},
    {"--precision", "--dtype"},
    {"--precision f16", "--fp16 --half"},
    {"--precision bf16", "--bf16"},
    {"--output", "--out --save --output-file"},
    {"--cell", "--model --rnn --type"},
    {"--weight-decay", "--wd"},
    {"--clip", "--grad-clip --clip-grad"},
    {"--optimizer", "--opt --optim --optimiser"},
    {"--delimiter", "--sep --separator"},
    {"--target-columns", "--target --targets"},
    {"--columns", "--features --inputs"},
    {"--label-column", "--label"},
    {"--sequence-column", "--id"},
    {"--horizon", "--forecast --ahead"},
    {"--validation-fraction", "--val-split --validation-split --val"},
    {"--bytes", "--max-tokens --tokens --num --chars"},
    {"--threads", "--workers --jobs"},
    {"--metrics", "--log"},
    {"--force", "--overwrite"},
    {"--resume", "--continue --restart"},
    {"--seed", "--random-seed"},
    {"--quiet", "--silent"},
    {"--missing", "--na"},
    {"--no-changes", "--no-last"},
    {"--irregular", "--gaps --freq --frequency"},
    {"--irregular fill", "--fill"},
    {"--group", "--by --series-id"},
    {"--known", "--exog --covariates --future"},
    {"--season", "--seasonality --period"},
    {"--quantiles", "--intervals"},
    {"--seeds", "--ensemble"},
    {"--init", "--finetune --fine-tune --pretrained"},
    {"--patience", "--early-stopping"},
    {"train", "fit learn"},
    {"generate", "sample write complete"},
    {"predict", "forecast classify infer run"},
    {"export", "onnx convert"},
    {"evaluate", "score test eval"},
    {"stream", "serve"},
    {"bench", "benchmark"},
    {"info", "show describe inspect list"},
    {"csp", "solve"},
    {"completion", "completions"},
};

}  // namespace

std::string suggestion(const std::string& text, const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  // The nearest word, and its meaning.
  std::vector<std::pair<std::string, std::string>> words;
  for (const std::string& name : names) words.emplace_back(name, name);
  for (const auto& [meant, others] : meanings) {
    if (!has(CLI::detail::split(meant, ' ').front())) continue;
    for (const std::string& word : CLI::detail::split(others, ' ')) words.emplace_back(word, meant);
  }
  const auto far = [&](const std::pair<std::string, std::string>& word) {
    return distance(CLI::detail::to_lower(text), CLI::detail::to_lower(word.first));
  };
  const auto closest = std::ranges::min_element(words, {}, far);
  const std::size_t dashes = text.starts_with("--") ? 2 : 0;
  const std::size_t letters = text.size() - dashes;
  if (closest != words.end() && far(*closest) <= std::max<std::size_t>(1, letters / 3)) {
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
