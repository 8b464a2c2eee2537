#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "penstock/recurrent.h"

/// Shapes and options that every cell has to get right. Sizes sit on and beside what code treats specially: 1, odd,
/// prime, one past a vector or a tile (17, 33, 65).
namespace penstock::test {

enum class RowForm { full, lengths, packed, sorted };  // sorted: packed, none longer than the one before

/// Where the elements of a sequence lie. A slice is some of the channels of a wider contiguous tensor; gapped ones also
/// leave elements between the rows (or steps) unused.
enum class Layout {
  batch_first,
  time_first,
  batch_first_slice,
  time_first_slice,
  batch_first_gapped,
  time_first_gapped
};
constexpr int layout_count = 6;

/// The layout `places` further in the list, around its end.
constexpr Layout shifted(Layout layout, int places) {
  return static_cast<Layout>((static_cast<int>(layout) + places) % layout_count);
}

struct Case {
  std::string name;
  Index input = 5;
  Index hidden = 8;
  Index heads = 1;
  Index layers = 1;
  Direction direction = Direction::forward;
  Bias bias = Bias::both;
  Index rows = 3;
  Index steps = 7;
  RowForm form = RowForm::full;
  Layout layout = Layout::batch_first;
  bool mixed = false;  ///< x has `layout`; y, dy and dx each have another one.
  bool reset = false;
  bool state = true;        ///< Random states in and random gradients into the states out; else neither.
  double bias_scale = 0.3;  ///< Biases are uniform in +- this. Large: gates that are open, shut or slow.
  double gradient_clip = 0.0;
  bool every_state = false;  ///< States but the output of each step, and random gradients of them.

  RecurrentSpec spec(const std::string& cell) const {
    return {.cell = cell,
            .input_size = input,
            .hidden_size = hidden,
            .heads = heads,
            .layers = layers,
            .direction = direction,
            .bias = bias,
            .gradient_clip = gradient_clip};
  }
  bool applies_to(const CellInfo& cell) const {
    return ((heads == 1 && gradient_clip == 0.0) || !cell.scan) && (!every_state || cell.states > 1);
  }
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

/// One small network with every option that interacts with the others.
inline Case everything() {
  return {.name = "everything",
          .input = 3,
          .hidden = 6,
          .layers = 2,
          .direction = Direction::bidirectional,
          .rows = 4,
          .steps = 9,
          .form = RowForm::lengths,
          .layout = Layout::time_first_gapped,
          .mixed = true,
          .reset = true};
}

/// Sequences that a parallel scan cuts into several chunks (of 1,024 steps or less), at and beside their ends. Biases
/// up to 9 give some units a memory of thousands of steps, so that a chunk feels what comes in.
inline std::vector<Case> chunk_cases() {
  return {
      {.name = "one_chunk", .input = 2, .hidden = 9, .rows = 2, .steps = 1024, .bias_scale = 9.0},
      {.name = "past_one_chunk", .input = 2, .hidden = 17, .rows = 1, .steps = 1025, .bias_scale = 9.0},
      {.name = "chunks_of_uneven_rows",
       .input = 2,
       .hidden = 9,
       .direction = Direction::bidirectional,
       .rows = 4,
       .steps = 2500,
       .form = RowForm::lengths,
       .bias_scale = 9.0},
      {.name = "chunks_packed_reset",
       .input = 2,
       .hidden = 9,
       .direction = Direction::bidirectional,
       .rows = 3,
       .steps = 3100,
       .form = RowForm::packed,
       .reset = true,
       .bias_scale = 9.0},
  };
}

/// All layouts, alone and mixed, also where one row or one step leaves a stride without meaning.
inline std::vector<Case> layout_cases() {
  std::vector<Case> cases;
  for (int layout = 0; layout < layout_count; ++layout) {
    for (const auto& [rows, steps] : {std::pair<Index, Index>{1, 1}, {1, 4}, {3, 1}, {3, 4}, {3, 3}}) {
      for (const bool mixed : {false, true}) {
        Case c{.name = "layout_" + std::to_string(layout) + (mixed ? "_mixed_" : "_") + std::to_string(rows) + "x" +
                       std::to_string(steps)};
        c.layers = rows == 3 && steps == 4 ? 2 : 1;
        c.rows = rows, c.steps = steps, c.layout = static_cast<Layout>(layout), c.mixed = mixed;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

inline std::vector<Case> shape_cases() {
  return {
      {.name = "one_of_all", .input = 1, .hidden = 1, .rows = 1, .steps = 1},
      {.name = "one_unit", .input = 3, .hidden = 1, .rows = 2, .steps = 17},
      {.name = "one_step", .input = 17, .hidden = 33, .rows = 5, .steps = 1},
      {.name = "two_steps", .input = 2, .hidden = 3, .rows = 3, .steps = 2},
      {.name = "prime", .input = 7, .hidden = 13, .rows = 5, .steps = 7},
      {.name = "past_8_lanes", .input = 9, .hidden = 9, .rows = 2, .steps = 7},
      {.name = "past_16_lanes", .input = 17, .hidden = 17, .rows = 3, .steps = 17},
      {.name = "past_32_lanes", .input = 33, .hidden = 33, .rows = 1, .steps = 7},
      {.name = "past_64_lanes", .input = 1, .hidden = 65, .rows = 2, .steps = 2},
      {.name = "many_rows", .input = 2, .hidden = 5, .rows = 33, .steps = 3},
      {.name = "past_64_steps", .input = 3, .hidden = 5, .rows = 2, .steps = 65},
      {.name = "units_shared_by_threads", .input = 3, .hidden = 301, .rows = 1, .steps = 2},
      {.name = "past_256_steps", .input = 1, .hidden = 3, .rows = 1, .steps = 257, .bias_scale = 4.0},
  };
}

/// Rows and units that fill tiles of sixteen, or do not quite; steps enough that it pays to prepare for them.
inline std::vector<Case> tile_cases() {
  return {
      {.name = "tiles", .input = 37, .hidden = 67, .rows = 38, .steps = 17},
      {.name = "tiles_of_heads",
       .input = 64,
       .hidden = 96,
       .heads = 2,
       .direction = Direction::reverse,
       .bias = Bias::single,
       .rows = 29,
       .steps = 23,
       .form = RowForm::lengths},
      {.name = "tiles_of_layers",
       .input = 3,
       .hidden = 33,
       .layers = 2,
       .direction = Direction::bidirectional,
       .rows = 99,
       .steps = 6,
       .form = RowForm::packed,
       .reset = true},
      {.name = "tiles_of_long_rows", .input = 70, .hidden = 48, .rows = 13, .steps = 150, .gradient_clip = 0.4},
  };
}

/// Limits that about a third of the gradients which pass from step to step exceed, and states of every step.
inline std::vector<Case> gradient_cases() {
  Case all = everything(), packed = everything();
  all.name = "everything_clipped", all.gradient_clip = 0.3;
  packed.name = "every_state_packed", packed.form = RowForm::packed, packed.every_state = true;
  Case both = everything();
  both.name = "every_state_clipped", both.gradient_clip = 0.3, both.every_state = true;
  return {
      {.name = "clipped", .hidden = 17, .rows = 5, .steps = 11, .gradient_clip = 0.4},
      {.name = "clipped_heads", .hidden = 34, .heads = 2, .direction = Direction::reverse, .gradient_clip = 0.2},
      {.name = "every_state", .hidden = 17, .every_state = true},
      {.name = "every_state_of_layers", .hidden = 9, .layers = 3, .every_state = true},
      {.name = "every_state_of_one", .hidden = 1, .rows = 1, .steps = 1, .every_state = true},
      all,
      packed,
      both,
  };
}

inline std::vector<Case> option_cases() {
  return {
      {.name = "no_bias", .bias = Bias::none},
      {.name = "single_bias", .bias = Bias::single},
      {.name = "no_state", .state = false},
      {.name = "two_heads", .hidden = 6, .heads = 2},
      {.name = "heads_past_16_lanes", .hidden = 34, .heads = 2, .bias = Bias::single, .rows = 2, .steps = 3},
      {.name = "heads_of_one", .hidden = 5, .heads = 5, .layers = 2, .bias = Bias::none},
      {.name = "heads_of_two", .hidden = 38, .heads = 19, .rows = 6, .steps = 1},
      {.name = "reverse", .direction = Direction::reverse},
      {.name = "bidirectional", .direction = Direction::bidirectional},
      {.name = "layers", .layers = 3, .bias = Bias::single},
      {.name = "layers_bidirectional", .layers = 2, .direction = Direction::bidirectional},
      {.name = "heads_layers_bidirectional",
       .hidden = 6,
       .heads = 3,
       .layers = 2,
       .direction = Direction::bidirectional,
       .form = RowForm::lengths},
      {.name = "lengths", .rows = 5, .form = RowForm::lengths},
      {.name = "lengths_reverse", .direction = Direction::reverse, .rows = 5, .form = RowForm::lengths},
      {.name = "packed", .rows = 5, .form = RowForm::packed},
      {.name = "packed_reverse_gapped",
       .direction = Direction::reverse,
       .rows = 5,
       .form = RowForm::packed,
       .layout = Layout::batch_first_gapped},
      {.name = "packed_layers_bidirectional_reset",
       .layers = 2,
       .direction = Direction::bidirectional,
       .rows = 5,
       .form = RowForm::packed,
       .reset = true},
      {.name = "reset", .steps = 17, .reset = true},
      {.name = "reset_reverse", .direction = Direction::reverse, .steps = 17, .reset = true},
      {.name = "reset_no_state", .steps = 17, .reset = true, .state = false},
      everything(),
  };
}

}  // namespace penstock::test
