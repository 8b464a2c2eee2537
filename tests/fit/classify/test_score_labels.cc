// Scores of labels: accuracy and macro F1 from a table of truths and answers.

#include <gtest/gtest.h>

#include "penstock/classify/labels.h"
#include "penstock/forecast/score.h"

namespace penstock {
namespace {

TEST(LabelScore, IsCountedFromTheConfusion) {
  const LabelScore score = score_labels({{3, 1, 0}, {2, 4, 0}, {0, 0, 0}});
  EXPECT_EQ(score.scored, 10);
  EXPECT_DOUBLE_EQ(score.accuracy, 0.7);
  EXPECT_DOUBLE_EQ(score.macro_f1, (6.0 / 9.0 + 8.0 / 11.0) / 2.0);
  EXPECT_EQ(score.majority, 1);
  EXPECT_DOUBLE_EQ(score.majority_accuracy, 0.6);
  EXPECT_EQ(score_labels({{0, 0}, {0, 0}}).accuracy, 0.0);
}

}  // namespace
}  // namespace penstock
