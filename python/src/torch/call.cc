#include "call.h"

#include <algorithm>

#include "penstock/cell.h"
#include "views.h"

namespace penstock::torch_ops {
PackedRows::PackedRows(const TorchTensor& batch_sizes, bool on_gpu) : on_gpu_(on_gpu) {
  check(batch_sizes.dim() == 1 && batch_sizes.dtype() == shim().int64 && !batch_sizes.is_cuda() &&
            batch_sizes.is_contiguous(),
        "batch_sizes must be an int64 tensor [T] on the CPU, as a PackedSequence has it");
  sizes_ = batch_sizes.data<Index>();
  const Index* const sizes = sizes_;
  longest_ = batch_sizes.size(0);
  check(longest_ > 0 && sizes[0] > 0, "batch_sizes must not be empty");
  std::vector<Index> lengths(static_cast<std::size_t>(sizes[0]));
  Index start = 0;
  for (Index t = 0; t < longest_; ++t) {
    check(sizes[t] > 0 && (t == 0 || sizes[t] <= sizes[t - 1]), "batch_sizes must be positive and never rise");
    const Index beyond = t + 1 < longest_ ? std::max<Index>(sizes[t + 1], 0) : 0;  // rows with a next step
    for (Index b = beyond; b < sizes[t]; ++b) lengths[static_cast<std::size_t>(b)] = t + 1;
    starts_.push_back(start);
    start += sizes[t];
  }
  cu_seqlens_.assign(1, 0);
  for (const Index length : lengths) cu_seqlens_.push_back(cu_seqlens_.back() + length);
  total_ = cu_seqlens_.back();
}

PackedRows::PackedRows(const TorchTensor& offsets, const TorchTensor& most, Index total)
    : on_gpu_(offsets.is_cuda()), offsets_(offsets.contiguous()), total_(total) {
  check(most.dtype() == shim().int64 && !most.is_cuda() && most.elements() == 1 && *most.data<Index>() > 0,
        "batch_sizes must be an int64 tensor [1] on the CPU with the most steps of a row, as lengths has row offsets");
  check(offsets.dtype() == shim().int64 && offsets.dim() == 1 && offsets.size(0) > 1,
        "lengths must have the row offsets, int64 [B + 1], not ", offsets);
  longest_ = *most.data<Index>();
  if (on_gpu_) return;  // the host cannot read offsets there without synchronising
  const Index* const values = offsets_.data<Index>();
  Index longest = 1;
  check(values[0] == 0 && values[rows()] == total, "row offsets must begin with 0 and end with ", total);
  for (Index b = 0; b < rows(); ++b) {
    const Index length = values[b + 1] - values[b];
    check(length >= 0 && length <= longest_, "rows must have 0 to ", longest_, " steps, not ", length);
    longest = std::max(longest, length);
  }
  longest_ = longest;
}

TorchTensor PackedRows::cu_seqlens(const TorchTensor& like) const {
  if (offsets_) return offsets_.share();
  return like.upload(rows() + 1, [this](Index* numbers) { std::ranges::copy(cu_seqlens_, numbers); });
}

const TorchTensor& PackedRows::sources(const TorchTensor& like) const {
  if (sources_) return sources_;
  sources_ = like.upload(total(), [this](Index* source) {
    for (Index b = 0; b < rows(); ++b) {
      const auto row = static_cast<std::size_t>(b);
      const Index length = cu_seqlens_[row + 1] - cu_seqlens_[row];
      for (Index t = 0; t < length; ++t) *source++ = starts_[static_cast<std::size_t>(t)] + b;
    }
  });
  return sources_;
}

const TorchTensor& PackedRows::places(const TorchTensor& like) const {
  if (places_) return places_;
  places_ = like.upload(total(), [this](Index* place) {
    for (Index t = 0; t < longest_; ++t) {
      for (Index b = 0; b < sizes_[t]; ++b) *place++ = cu_seqlens_[static_cast<std::size_t>(b)] + t;
    }
  });
  return places_;
}

TorchTensor PackedRows::by_rows(TorchTensor tensor) const {
  return on_gpu_ && is_by_steps() ? tensor.index_select(sources(tensor)) : std::move(tensor);
}
TorchTensor PackedRows::by_steps(TorchTensor tensor) const {
  return on_gpu_ && is_by_steps() ? tensor.index_select(places(tensor)) : std::move(tensor);
}

void RecurrentCall::take_tensors(Arguments& arguments) {
  x = arguments.tensor();
  weights = arguments.tensors();
  state = arguments.optional_tensor();
  take_rows(arguments);
}

void RecurrentCall::take_rows(Arguments& arguments) {
  lengths = arguments.optional_tensor();
  batch_sizes = arguments.optional_tensor();
  reset = arguments.optional_tensor();
}

void RecurrentCall::take_form(Arguments& arguments) {
  spec.cell = arguments.string();
  spec.layers = arguments.integer();
  spec.direction = arguments.boolean() ? Direction::bidirectional : Direction::forward;
  batch_first = arguments.boolean();
}

Sizes RecurrentCall::sequence_sizes(Index channels) const {
  if (one_step && x.dim() == 1) return {channels};
  if (packed || one_step) return {x.size(0), channels};
  return {x.size(0), x.size(1), channels};
}

Sizes RecurrentCall::every_state_sizes() const {
  return every_state ? sequence_sizes((states - 1) * spec.output_size()) : Sizes{0};
}

void RecurrentCall::validate() {
  const CellInfo& cell = find_cell(spec.cell);
  states = cell.states;
  dtype_of(x.dtype());
  if (batch_sizes) {
    packed = lengths ? std::make_unique<PackedRows>(lengths, batch_sizes, x.size(0))
                     : std::make_unique<PackedRows>(batch_sizes, x.is_cuda());
  }
  if (one_step) {
    check(x.dim() == 1 || x.dim() == 2, "x must have 1 or 2 dimensions, not the shape ", x);
    rows = x.dim() == 1 ? 1 : x.size(0);
    steps = 1;
  } else {
    check(x.dim() == (packed ? 2 : 3), "x must have ", packed ? "2" : "3", " dimensions, not the shape ", x);
    rows = packed ? packed->rows() : x.size(batch_first ? 0 : 1);
    steps = packed ? packed->longest() : x.size(batch_first ? 1 : 0);
  }
  check(!packed || packed->total() == x.size(0), "batch_sizes must add up to the ", x.size(0), " positions of x");
  check(steps > 0 || rows == 0, "Expected sequence length to be larger than 0 in RNN");
  spec.input_size = x.size(-1);
  spec.projected_input = !weights.empty() && weights[0].dim() == 2 && weights[0].size(1) == 0 && spec.input_size > 0;
  validate_weights(cell);
  check(!every_state || states > 1, "every_state is for cells with more states than the output, not for ", spec.cell);
  validate_state();
  validate_rows();
  validate_devices();
}

void RecurrentCall::validate_weights(const CellInfo& cell) {
  const auto count = static_cast<Index>(weights.size());
  const Index matrices = cell.scan ? 1 : 2;
  const bool divides = spec.layers >= 1 && count > 0 && count % slots() == 0;
  const Index each = divides ? count / slots() : 0;
  check(divides && each >= matrices && each <= 2 * matrices,
        "weights must hold weight_ih, weight_hh, bias_ih and bias_hh of every layer and direction, as far as the cell "
        "has them; there are ",
        count, " for ", slots());
  spec.bias = each == matrices ? Bias::none : each == matrices + 1 ? Bias::single : Bias::both;
  check(weights[0].dim() == 2 && weights[0].size(0) > 0 && weights[0].size(0) % cell.gates == 0,
        "weight_ih_l0 must be [", cell.gates, " * H, I], not ", weights[0]);
  spec.hidden_size = weights[0].size(0) / cell.gates;
  spec.heads = !cell.scan && weights[1].dim() == 3 ? weights[1].size(0) : 1;
  check(spec.heads > 0 && spec.hidden_size % spec.heads == 0, "heads must divide the hidden size");
  const Index gates = weights[0].size(0);
  check(!spec.projected_input || spec.input_size == gates, "wx must have the ", gates, " values of all gates, not ",
        spec.input_size);
  for (Index i = 0; i < count; ++i) {
    const Index layer = i / each / spec.directions(), kind = i % each;
    Sizes expected{gates};
    if (kind == matrices) expected = {gates + learnt_vectors(spec.cell) * spec.hidden_size};
    if (kind == 0) expected = {gates, layer > 0 ? spec.output_size() : spec.projected_input ? 0 : spec.input_size};
    if (kind == 1 && !cell.scan) expected = {gates, spec.hidden_size};
    if (kind == 1 && spec.heads > 1) expected = {spec.heads, gates / spec.heads, spec.hidden_size / spec.heads};
    const TorchTensor& weight = weights[static_cast<std::size_t>(i)];
    check(weight.sizes() == expected, "weights[", i, "] must be ", expected, ", not ", weight);
    check(weight.dtype() == weights[0].dtype(), "weights must be of one dtype");
  }
}

void RecurrentCall::take_restarts(Index entering_rows) {
  if (!reset || packed) return;
  for (const Restarts these : {Restarts::steps, Restarts::rows, Restarts::one, Restarts::zeros}) {
    if (state_rows(these, rows, steps) == entering_rows) restarts = these;
  }
}

void RecurrentCall::validate_state() {
  if (!state) return;
  if (state.dim() == 4) take_restarts(state.size(2));
  check(state.sizes() == entering_sizes(), "state must be [S, layers * directions, B, H] = ", state_sizes(),
        ", with a reset also of B + 1, 2 * B or B + B * T rows, not ", state);
}

void RecurrentCall::validate_rows() const {
  if (lengths && !packed) {
    check(lengths.dtype() == shim().int64, "lengths must be of dtype int64");
    check(lengths.dim() == 1 && lengths.size(0) == rows, "lengths must be [B] = [", rows, "], not ", lengths);
  }
  if (!reset) return;
  const Sizes expected = packed ? Sizes{x.size(0)} : Sizes{rows, steps};
  check(reset.dtype() == shim().boolean || reset.dtype() == shim().uint8, "reset must be of dtype bool");
  check(reset.sizes() == expected, "reset must be of the rows and steps of x, ", expected, ", not ", reset);
}

void RecurrentCall::validate_devices() const {
  const auto check_device = [&](const TorchTensor& tensor, const char* name) {
    check(tensor.is_cuda() == x.is_cuda() && (!x.is_cuda() || tensor.device_index() == x.device_index()),
          "Input and parameter tensors are not at the same device: x is on another than ", name);
  };
  for (const TorchTensor& weight : weights) check_device(weight, "the weights");
  if (state) check_device(state, "state");
  if (lengths) check_device(lengths, "lengths");
  if (reset) check_device(reset, "reset");
}

void check_lengths(const TorchTensor& lengths, Index steps) {
  if (lengths.is_cuda()) return;
  const Index* const values = lengths.data<Index>();
  for (Index b = 0; b < lengths.size(0); ++b) {
    check(values[b] >= 0 && values[b] <= steps, "lengths must be 0 to T = ", steps, ", not ", values[b]);
  }
}

TorchTensor ready_reset(const TorchTensor& reset, const TorchTensor& sequence, const char* name) {
  const Sizes expected{sequence.size(0), sequence.size(1)};
  check(reset.sizes() == expected && (reset.dtype() == shim().boolean || reset.dtype() == shim().uint8),
        "reset must be bool [B, T] = ", expected, ", not ", reset);
  check(device_of(reset) == device_of(sequence), "reset must be on the device of ", name);
  return reset.contiguous();
}

}  // namespace penstock::torch_ops
