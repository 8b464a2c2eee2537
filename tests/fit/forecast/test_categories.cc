#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "data/series/series_rows.h"
#include "penstock/data.h"
#include "penstock/model.h"
#include "penstock/train.h"
#include "penstock/train/fine_tune.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace penstock {
namespace {

using test::expect_error;
using test::TemporaryFolder;

constexpr const char* days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

/// 70 rows: a weekday, a holiday that most rows have not, a note that is never the same, and a wind of the last rows.
std::string shop(Index rows = 70) {
  std::string text = "v,day,holiday,note,wind\n";
  for (Index i = 0; i < rows; ++i) {
    text += std::to_string(100 + i * i % 13) + "," + days[i % 7] + "," + (i % 10 == 3 ? "Sale" : "") + ",n" +
            std::to_string(i) + "," + (i < rows - 5 ? "N" : "E") + "\n";
  }
  return text;
}

std::vector<std::string> titles(const std::vector<Column>& columns) {
  std::vector<std::string> all;
  for (const Column& column : columns) all.push_back(column.title());
  return all;
}

class Categories : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(SeriesOptions options = {}) const { return open_series(path, options); }

  TemporaryFolder folder;
  std::string path = folder.write("s.csv", shop());
};

TEST_F(Categories, ColumnsOfFewTexts) {
  const auto data = open();
  const DataDescription& description = data->description();
  EXPECT_EQ(titles(description.inputs),
            (std::vector<std::string>{"v", "day = Mon", "day = Tue", "day = Wed", "day = Thu", "day = Fri", "day = Sat",
                                      "day = Sun", "holiday = Sale", "wind = N"}))
      << "an easterly wind is in no row of training";
  EXPECT_EQ(titles(description.targets), (std::vector<std::string>{"v"}));
  EXPECT_EQ(data->reading(), (std::vector<Message>{"4 columns read, 1 left out: note (text)",
                                                   "day as 7 categories: Mon, Tue, Wed, Thu, Fri, Sat and 1 more",
                                                   "holiday as a category: Sale", "wind as a category: N"}));
  const training::SeriesRows& rows = *data->series_rows();
  for (Index row = 0; row < 70; ++row) {
    const auto inputs = rows.inputs().subspan(static_cast<std::size_t>(row) * 10, 10);
    for (Index day = 0; day < 7; ++day) EXPECT_EQ(inputs[1 + day], row % 7 == day ? 1.0f : 0.0f) << row;
    EXPECT_EQ(inputs[8], row % 10 == 3 ? 1.0f : 0.0f) << row;
    EXPECT_EQ(inputs[9], row < 65 ? 1.0f : 0.0f) << row;
  }
}

TEST_F(Categories, Chosen) {
  EXPECT_EQ(open({.categories = {"none"}})->description().inputs.size(), 1u);
  EXPECT_EQ(open({.inputs = {"v", "holiday"}})->description().inputs.size(), 2u);
  EXPECT_EQ(open({.inputs = {"v"}, .categories = {"day"}})->description().inputs.size(), 8u);
  EXPECT_EQ(open({.inputs = {"v"}, .validation_fraction = 0, .categories = {"note"}})->description().inputs.size(),
            71u);
  expect_error(ErrorCode::invalid_argument, "categories: " + path + " has no column \"x\", only \"v\", \"day\"",
               [&] { open({.categories = {"x"}}); });
  expect_error(ErrorCode::bad_input, "column \"note\": \"n0\" is not a number", [&] {
    open({.inputs = {"v", "note"}});
  });
  expect_error(ErrorCode::bad_input, "column \"day\": \"Mon\" is not a number",
               [&] { open({.inputs = {"v"}, .targets = {"day"}}); });
  expect_error(ErrorCode::invalid_argument, "inputs: no column of " + path + " is left to be forecast",
               [&] { open({.inputs = {"day"}}); });
  const std::string numbers = folder.write("n.csv", "v,store\n1,7\n2,8\n3,7\n4,8\n");
  const auto stores = open_series(numbers, {.validation_fraction = 0, .categories = {"store"}});
  EXPECT_EQ(titles(stores->description().inputs), (std::vector<std::string>{"v", "store = 7", "store = 8"}));
  EXPECT_EQ(titles(stores->description().targets), (std::vector<std::string>{"v"}));
  std::string many = "v,c\n";
  for (Index i = 0; i < 1001; ++i) many += std::to_string(i) + "," + std::to_string(i) + "\n";
  expect_error(ErrorCode::bad_input, "column \"c\" has more than 1000 different values, too many to be categories",
               [&] { open_series(folder.write("m.csv", many), {.categories = {"c"}}); });
  // A tenth of the rows is the limit.
  EXPECT_EQ(open_series(folder.write("a.csv", shop(69)))->reading().front(),
            "3 columns read, 2 left out: day (text), note (text)");
}

TEST_F(Categories, RowsOfAStream) {
  const auto data = open();
  const DataDescription& description = data->description();
  RowReader rows(description, "wind,holiday,day,v", "-");
  std::vector<float> features(description.inputs.size());
  const auto read = [&](const std::string& line) {
    EXPECT_TRUE(rows.read(line, features));
    return std::vector<float>(features.begin() + 1, features.end());
  };
  EXPECT_EQ(read("N,,Tue,100"), (std::vector<float>{0, 1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(rows.findings().unknown_categories.count, 0);
  EXPECT_EQ(read("E,Easter,Sun,100"), (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(rows.findings().unknown_categories.count, 2);
  EXPECT_EQ(rows.findings().unknown_categories.first, "-:3:3: column \"holiday\": \"Easter\"");
  EXPECT_EQ(rows.text(2), "Sun");
  expect_error(ErrorCode::bad_input, "-:4:8: 3 fields, the header has 4", [&] { read("N,Sale,Mon"); });
  expect_error(ErrorCode::bad_input, "the model reads a column \"day\"",
               [&] { RowReader(description, "wind,holiday,v", "-"); });
}

TEST_F(Categories, KnownInAdvanceAndKeptInFiles) {
  SeriesOptions options{.horizon = 2, .known = {"day", "holiday"}};
  options.from_last = options.autoregression = true;
  const auto data = open(options);
  const DataDescription& description = data->description();
  ASSERT_EQ(description.inputs.size(), 10u + 2 * 8);
  EXPECT_EQ(description.inputs[10].title(), "day = Mon (+1)");
  EXPECT_EQ(description.inputs[11].title(), "day = Mon (+2)");
  const training::SeriesRows& rows = *data->series_rows();
  for (Index row = 0; row < 68; ++row) {
    EXPECT_EQ(rows.inputs()[static_cast<std::size_t>(row) * 26 + 10], (row + 1) % 7 == 0 ? 1.0f : 0.0f) << row;
  }
  ModelSpec spec{.cell = "mingru", .width = 4, .blocks = 1, .from_last = true};
  use_linear_forecast(spec, *data);
  Model model(spec, description, 1);
  fit_autoregression(model, *data);
  model.save(folder.path("m.safetensors"));
  const Model loaded = Model::load(folder.path("m.safetensors"));
  EXPECT_EQ(titles(loaded.data().inputs), titles(description.inputs));
  EXPECT_EQ(loaded.data().inputs[10].category, "Mon");
  // Data for further training have its categories, whatever is in them.
  const auto more = open_series(Sources{folder.write("t.csv", shop(12))}, options, &loaded.data());
  EXPECT_EQ(titles(more->description().inputs), titles(description.inputs));
}

TEST_F(Categories, SeriesOfGroupsAreNotScaledByThem) {
  std::string text = "v,shop,region\n";
  for (Index i = 0; i < 60; ++i) {
    text += std::to_string(i % 7 + i % 3 * 100) + ",s" + std::to_string(i % 3) + (i % 3 == 0 ? ",north\n" : ",south\n");
  }
  const auto data = open_series(folder.write("g.csv", text), {.group = "shop"});
  const DataDescription& description = data->description();
  EXPECT_EQ(titles(description.inputs), (std::vector<std::string>{"v", "region = north", "region = south"}));
  for (const Group& group : description.series.groups) {
    EXPECT_EQ(group.inputs[1].mean, 0.0);
    EXPECT_EQ(group.inputs[1].scale, 1.0);
  }
  const training::SeriesRows& rows = *data->series_rows();
  EXPECT_EQ(rows.inputs()[1], 1.0f) << "which region it is tells series apart";
  // A series that training did not see.
  RowReader reader(description, "v,shop,region", "-");
  std::vector<float> features(3);
  ASSERT_TRUE(reader.read("5,new,south", features));
  ASSERT_FALSE(reader.knows_group());
  (void)reader.settle_group("new", features, 1);
  EXPECT_EQ((std::vector<float>{features[1], features[2]}), (std::vector<float>{0.0f, 1.0f}));
}

TEST_F(Categories, OfLabelledSequencesAlone) {
  std::string text = "sequence,label,base\n";
  for (Index i = 0; i < 80; ++i) {
    text += std::to_string(i / 4) + (i / 4 % 2 == 0 ? ",up," : ",down,") + "ACGT"[i % 4] + "\n";
  }
  const auto data = open_labelled(folder.write("l.csv", text));
  EXPECT_EQ(titles(data->description().inputs),
            (std::vector<std::string>{"base = A", "base = C", "base = G", "base = T"}));
  EXPECT_EQ(data->reading(), (std::vector<Message>{"base as 4 categories: A, C, G, T"}));
  Example example;
  ASSERT_TRUE(data->validation(0, 1, 4, example));
  for (Index i = 0; i < 16; ++i) EXPECT_EQ(example.features[i], i / 4 == i % 4 ? 1.0f : 0.0f);
  expect_error(ErrorCode::bad_input, "no numeric column to use as input",
               [&] { open_labelled(folder.path("l.csv"), {.categories = {"none"}}); });
}

TEST_F(Categories, DescriptionsThatMakeNoSense) {
  DataDescription data = open()->description();
  const auto refuse = [&](const std::string& message, const auto& spoil) {
    DataDescription spoilt = data;
    spoil(spoilt.inputs[1]);
    expect_error(ErrorCode::invalid_argument, message, [&] { Model(ModelSpec{.width = 4}, spoilt, 1); });
  };
  refuse("column \"day\" must have a category if that is read of it, and none otherwise",
         [](Column& column) { column.category.clear(); });
  refuse("column \"day\" must have a category", [](Column& column) { column.feature = Feature::value; });
  refuse("categories of column \"day\" must not be scaled", [](Column& column) { column.scale = 2.0; });
}

}  // namespace
}  // namespace penstock
