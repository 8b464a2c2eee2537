#include <algorithm>
#include <utility>

#include "base/check.h"
#include "penstock/classify/labels.h"

namespace penstock {

LabelScore score_labels(std::vector<std::vector<Index>> confusion) {
  LabelScore score;
  const std::size_t classes = confusion.size();
  std::vector<Index> truths(classes, 0), answers(classes, 0);
  Index correct = 0;
  for (std::size_t truth = 0; truth < classes; ++truth) {
    require(confusion[truth].size() == classes, "confusion must be square: {} classes, and {} answers of class {}",
            classes, confusion[truth].size(), truth);
    for (std::size_t answer = 0; answer < classes; ++answer) {
      truths[truth] += confusion[truth][answer];
      answers[answer] += confusion[truth][answer];
    }
    score.scored += truths[truth];
    correct += confusion[truth][truth];
  }
  double f1 = 0.0, seen = 0.0;
  for (std::size_t i = 0; i < classes; ++i) {
    if (truths[i] + answers[i] == 0) continue;
    f1 += 2.0 * static_cast<double>(confusion[i][i]) / static_cast<double>(truths[i] + answers[i]);
    seen += 1.0;
  }
  const auto share = [&](Index count) {
    return score.scored > 0 ? static_cast<double>(count) / static_cast<double>(score.scored) : 0.0;
  };
  score.accuracy = share(correct);
  score.macro_f1 = seen > 0.0 ? f1 / seen : 0.0;
  if (classes > 0) {
    score.majority = std::ranges::max_element(truths) - truths.begin();
    score.majority_accuracy = share(truths[score.majority]);
  }
  score.confusion = std::move(confusion);
  return score;
}

}  // namespace penstock
