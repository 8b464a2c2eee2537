// Engines of scan cells whose gates are in memory: h_t = a_t h_{t-1} + b_t, with a and b from the gates of the same
// step. Each part of a sequence is read once, all its channels at a time, so that memory is touched in the order it
// lies in; the carried row stays in the first-level cache.

// Gates and their gradients are kept as Reals; panel_bf16.inl has the same for bfloat16.
HWY_INLINE Simd LoadStored(const float* p, Index n) { return Lanes<float>::load(p, n); }
HWY_INLINE double LoadStored(const double* p, Index n) { return Lanes<double>::load(p, n); }
HWY_INLINE void StoreStored(Simd v, float* p, Index n) { Lanes<float>::store(v, p, n); }
HWY_INLINE void StoreStored(double v, double* p, Index n) { Lanes<double>::store(v, p, n); }

/// Gate values of one vector of channels; `rows` are the step's rows of gates.
template <class Real, class Cell, class Stored>
HWY_INLINE void LoadGates(const Stored* const (&rows)[Cell::gates], Index channel, Index count,
                          typename Lanes<Real>::V (&gates)[Cell::gates]) {
  for (int g = 0; g < Cell::gates; ++g) gates[g] = LoadStored(rows[g] + channel, count);
}

/// Places of the steps of one row, for loops over it; values that are the same for all steps are computed once.
template <class Value>
class StepsOfRow {
 public:
  StepsOfRow() = default;
  StepsOfRow(const ChannelRows<Value>& rows, Index row)
      : first_(rows.data + rows.map.first[row] * rows.scale),
        step_(rows.map.step * rows.scale),
        steps_(rows.map.steps),
        scale_(rows.scale) {}

  HWY_INLINE Value* at(Index t) const { return first_ + (steps_ != nullptr ? steps_[t] * scale_ : t * step_); }

 private:
  Value* first_ = nullptr;
  Index step_ = 0;
  const Index* steps_ = nullptr;  // [T] or null, as in RowMap
  Index scale_ = 1;
};

/// The gates of one row.
template <class Stored, int gates>
class GateSteps {
 public:
  GateSteps(const ChannelRows<const Stored> (&gate)[kMostScanGates], Index row) {
    for (int g = 0; g < gates; ++g) gate_[g] = {gate[g], row};
  }

  HWY_INLINE void at(Index t, const Stored* (&rows)[gates]) const {
    for (int g = 0; g < gates; ++g) rows[g] = gate_[g].at(t);
  }

 private:
  StepsOfRow<const Stored> gate_[gates];
};

/// Calls body(channel, count) for the vectors of a part.
template <class Real, class Body>
HWY_INLINE void ForEachVector(const ScanPart& part, const Body& body) {
  constexpr Index lanes = Lanes<Real>::lanes;
  Index channel = part.channel_begin;
  for (; channel + lanes <= part.channel_end; channel += lanes) body(channel, lanes);
  if (channel < part.channel_end) body(channel, part.channel_end - channel);
}

/// Channels that are computed at once of a rule that splits its gains: some rows of them lie on the stack.
constexpr Index kSplitChannels = 1024;

/// Calls body(part) for as many channels at once as a rule allows.
template <class Cell, class Body>
HWY_INLINE void ForSplitChannels(const ScanPart& part, const Body& body) {
  if constexpr (!Cell::splits_gain) return body(part);
  ScanPart some = part;
  for (some.channel_begin = part.channel_begin; some.channel_begin < part.channel_end;
       some.channel_begin = some.channel_end) {
    some.channel_end = std::min(part.channel_end, some.channel_begin + kSplitChannels);
    body(some);
  }
}

/// `all`: infinite states, too, of a rule that splits its gains.
template <bool all, class Real, class Cell>
HWY_INLINE void StepForwards(const ScanForward<Real>& job, const ScanPart& part, Real* carry) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const RowPlan& plan = job.plan;
  const Index row = plan.row_of[part.slot];
  const GateSteps<Real, Cell::gates> gate(job.gate, row);
  const StepsOfRow<Real> outputs(job.y, row);
  const bool rounds = job.y_bf16.data != nullptr;
  for (Index step = part.begin; step < part.end; ++step) {
    const Index t = plan.time(part.slot, step);
    const Real* gates[Cell::gates];
    gate.at(t, gates);
    const bool restarts = plan.resets(part.slot, step);
    const Real* const restart = restarts ? job.restarts.at(row, t) : nullptr;
    Real* y = rounds ? nullptr : outputs.at(t);
    std::uint16_t* y_bf16 = rounds ? job.y_bf16.at(row, t) : nullptr;
    ForEachVector<Real>(part, [&](Index channel, Index count) HWY_ATTR {
      V wx[Cell::gates];
      LoadGates<Real, Cell>(gates, channel, count, wx);
      const V before = restarts ? Restarted<Real>(restart, channel, count) : L::load(carry + channel, count);
      const auto step_of = StepAt<Cell>(job, {channel, count}, wx);
      V h;
      if constexpr (all) {
        h = step_of.advance_all(before);
      } else {
        h = step_of.advance(before);
      }
      L::store(h, carry + channel, count);
      if constexpr (std::is_same_v<Real, float>) {
        if (rounds) return StoreBf16(h, y_bf16 + channel, count);
      }
      L::store(h, y + channel, count);
    });
  }
}

/// Runs a part by run(infinite states, too), quickly where its states are finite. What was infinite stays so, until
/// a reset; and running twice takes operands that the first time leaves as they were.
template <class Real, class Run>
HWY_INLINE void RepeatIfInfinite(const ScanPart& part, bool may_repeat, Real* carry, const Run& run) {
  Real entering[kSplitChannels];
  const Index channels = part.channel_end - part.channel_begin;
  if (!may_repeat) return run(std::true_type());
  std::copy_n(carry + part.channel_begin, channels, entering);
  run(std::false_type());
  Real sum = 0;  // of zeros, or of what is no number
  for (Index c = part.channel_begin; c < part.channel_end; ++c) sum += carry[c] * Real(0);
  if (sum == 0) return;
  std::copy_n(entering, channels, carry + part.channel_begin);
  run(std::true_type());
}

template <class Real, class Cell>
void RunScanForward(const ScanForward<Real>& job, const ScanPart& part, Real* carry) {
  if constexpr (!Cell::splits_gain) {
    StepForwards<false, Real, Cell>(job, part, carry);
  } else {
    bool may_repeat = job.plan.reset == nullptr;
    for (const auto& gate : job.gate) may_repeat &= gate.data != job.y.data;
    ForSplitChannels<Cell>(part, [&](const ScanPart& some) HWY_ATTR {
      RepeatIfInfinite(some, may_repeat, carry,
                       [&](auto all) HWY_ATTR { StepForwards<decltype(all)::value, Real, Cell>(job, some, carry); });
    });
  }
}

/// The effect of no step.
template <class Real>
HWY_INLINE void Begin(const ScanPart& part, const ScanEffect<Real>& effect) {
  using L = Lanes<Real>;
  ForEachVector<Real>(part, [&](Index channel, Index count) HWY_ATTR {
    L::store(typename L::V(1), effect.gain + channel, count);
    L::store(typename L::V(0), effect.gain_rest + channel, count);
    L::store(typename L::V(0), effect.offset + channel, count);
  });
}

/// Multiplies the gain of some channels by a. The rest is what the products so far have rounded away: where decays are
/// close to 1, they all round the same way, and a thousand of them would be off by a thousand roundings.
template <class Real, class V, bool splits>
HWY_INLINE void MultiplyGain(const AffineStep<V, splits>& by, bool clear, const ScanEffect<Real>& effect, Index channel,
                             Index count) {
  using L = Lanes<Real>;
  const V gain = L::load(effect.gain + channel, count);
  V product, rest;
  if constexpr (splits) {
    const V of_part = by.part * gain;
    product = MulAdd(by.whole, gain, of_part);
    rest = MulAdd(by.whole, gain, V(0) - product) + of_part;
  } else {
    product = by.a * gain;
    rest = ProductRest(by.a, gain, product);
  }
  rest = MulAdd(by.gain(), L::load(effect.gain_rest + channel, count), rest);
  L::store(clear ? V(0) : product, effect.gain + channel, count);
  L::store(clear ? V(0) : rest, effect.gain_rest + channel, count);
}

template <class Real, class Cell>
void RunScanForwardSummary(const ScanForward<Real>& job, const ScanPart& part, const ScanEffect<Real>& effect) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const RowPlan& plan = job.plan;
  const Index row = plan.row_of[part.slot];
  const GateSteps<Real, Cell::gates> gate(job.gate, row);
  Begin<Real>(part, effect);
  for (Index step = part.begin; step < part.end; ++step) {
    const Index t = plan.time(part.slot, step);
    const Real* gates[Cell::gates];
    gate.at(t, gates);
    const bool clear = plan.resets(part.slot, step);
    const Real* const restart = clear ? job.restarts.at(row, t) : nullptr;
    ForEachVector<Real>(part, [&](Index channel, Index count) HWY_ATTR {
      V wx[Cell::gates];
      LoadGates<Real, Cell>(gates, channel, count, wx);
      const auto by = StepAt<Cell>(job, {channel, count}, wx);
      const V before = clear ? Restarted<Real>(restart, channel, count) : L::load(effect.offset + channel, count);
      L::store(by.advance(before), effect.offset + channel, count);
      MultiplyGain(by, clear, effect, channel, count);
    });
  }
}

/// A forward pass's output and its gradient, as the caller stores them.
template <class Sequence>
struct OutputRows {
  ChannelRows<const Sequence> y, dy;
};

/// Calls body with the outputs of a job.
template <class Real, class Stored, class Body>
HWY_INLINE void WithOutputs(const ScanBackward<Real, Stored>& job, const Body& body) {
  if constexpr (!std::is_same_v<Real, Stored>) {
    if (job.y_bf16.data != nullptr) return body(OutputRows<std::uint16_t>{job.y_bf16, job.dy_bf16});
  }
  body(OutputRows<Real>{job.y, job.dy});
}

/// Values that the backward pass reads for one row.
template <class Real, class Stored, class Sequence, int gates>
struct BackwardSteps {
  using V = typename Lanes<Real>::V;

  BackwardSteps(const ScanBackward<Real, Stored>& scan, const OutputRows<Sequence>& outputs, Index its_slot)
      : job(scan),
        slot(its_slot),
        gate(job.gate, job.plan.row_of[slot]),
        dy(outputs.dy, job.plan.row_of[slot]),
        y(outputs.y, job.plan.row_of[slot]) {}

  /// The state entering a step: that of the layer, or as the forward pass left it in its output.
  struct StateBefore {
    const Real* entering;
    const Sequence* output;

    HWY_INLINE V load(Index channel, Index count) const {
      return entering != nullptr ? LoadStored(entering + channel, count) : LoadStored(output + channel, count);
    }
  };
  HWY_INLINE StateBefore state_before(Index step, Index t_before) const {
    if (step == 0) return {job.state_in + slot * job.hidden, nullptr};
    return {nullptr, y.at(t_before)};
  }

  const ScanBackward<Real, Stored>& job;
  Index slot;
  GateSteps<Stored, gates> gate;
  StepsOfRow<const Sequence> dy, y;
};

/// Asks for what a step will read, some steps before: processors that run ahead by themselves do so towards higher
/// addresses rather than lower ones, and hardly across pages. The distance is that of the last steps, though those of
/// packed rows may differ a little: what is read ahead needlessly does no harm.
template <class Stored, class Sequence, int gates>
class StepsAhead {
 public:
  template <class Real>
  StepsAhead(const BackwardSteps<Real, Stored, Sequence, gates>& steps, const ScanPart& part) {
    const Index ahead = std::max<Index>(1, kAheadBytes / sizeof(Real) / (part.channel_end - part.channel_begin));
    const Index from = steps.job.plan.time(part.slot, part.end - 1);
    const Index to = steps.job.plan.time(part.slot, std::max<Index>(0, part.end - 1 - ahead));
    const Stored *gates_from[gates], *gates_to[gates];
    steps.gate.at(from, gates_from);
    steps.gate.at(to, gates_to);
    for (int g = 0; g < gates; ++g) gates_[g] = gates_to[g] - gates_from[g];
    dy_ = steps.dy.at(to) - steps.dy.at(from);
    y_ = steps.y.at(to) - steps.y.at(from);
  }

  HWY_INLINE void ask(const Stored* const (&rows)[gates], const Sequence* dy, const Sequence* y, Index channel) const {
    for (int g = 0; g < gates; ++g) ask_for(rows[g], gates_[g] + channel);
    ask_for(dy, dy_ + channel);
    ask_for(y, y_ + channel);
  }

 private:
  static constexpr Index kAheadBytes = 4096;  // of a row; from 1 to 8 KB it makes no difference

  /// Prefetches by address alone: the first steps ask for addresses in front of their arrays.
  template <class Value>
  static HWY_INLINE void ask_for(const Value* row, Index values) {
    const auto address = reinterpret_cast<std::uintptr_t>(row) + values * sizeof(Value);
    __builtin_prefetch(reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
  }

  Index gates_[gates], dy_, y_;
};

/// Gradients of states, from a step to the one before: the carry of a step holds all that flows into its state, so that
/// it takes one operation, as the states themselves do. `all`: infinite ones, too.
template <bool all, class Real, class Sequence>
class FlowingBack {
 public:
  using L = Lanes<Real>;
  using V = typename L::V;

  FlowingBack(const StepsOfRow<const Sequence>& dy, const ScanPart& part, const RowPlan& plan, Real* carry)
      : dy_(dy), part_begin_(part.begin), carry_(carry) {
    const Sequence* last = dy_.at(plan.time(part.slot, part.end - 1));
    ForEachVector<Real>(part, [&](Index channel, Index count) HWY_ATTR {
      L::store(load(channel, count) + LoadStored(last + channel, count), carry + channel, count);
    });
  }

  HWY_INLINE void set_step(Index step, Index t_before) { before_ = step > part_begin_ ? dy_.at(t_before) : nullptr; }

  HWY_INLINE const Sequence* before() const { return before_; }
  HWY_INLINE V load(Index channel, Index count) const { return L::load(carry_ + channel, count); }

  /// Without a split gain, a dh is rounded before dy is added: as where a caller passes the gradient of a state on from
  /// one part of a sequence to the part before, which gives the same bits as the whole then.
  template <bool splits>
  HWY_INLINE void pass(AffineStep<V, splits> by, V dh, bool clear, Index channel, Index count) const {
    const V dy = before_ != nullptr ? LoadStored(before_ + channel, count) : V(0);
    L::store(clear ? dy : through(by, dh, dy), carry_ + channel, count);
  }

  /// Adds the gradient of the state that a row started again with to `drestart` [C].
  template <bool splits>
  HWY_INLINE void leave(AffineStep<V, splits> by, V dh, Real* drestart, Index channel, Index count) const {
    Real* const sum = drestart + channel;
    L::store(L::load(sum, count) + through(by, dh, V(0)), sum, count);
  }

 private:
  template <bool splits>
  static HWY_INLINE V through(AffineStep<V, splits> by, V dh, V dy) {
    if constexpr (!splits) {
      return dy + by.a * dh;
    } else {
      by.b = dy;
      if constexpr (all) {
        return by.advance_all(dh);
      } else {
        return by.advance(dh);
      }
    }
  }

  StepsOfRow<const Sequence> dy_;
  Index part_begin_;
  Real* carry_;
  const Sequence* before_ = nullptr;  // the gradient of the output of the step before, of the same part
};

/// The carry is the gradient of the state that leaves the part; with it the steps run backwards:
/// dh = dy + carry, da = dh h_{t-1}, db = dh, carry = a dh, where dy is added to the carry a step before.
template <bool all, class Real, class Cell, class Stored, class Sequence>
HWY_INLINE void StepBackwards(const ScanBackward<Real, Stored>& job, const OutputRows<Sequence>& outputs,
                              const ScanPart& part, Real* carry) {
  using L = Lanes<Real>;
  using V = typename L::V;
  if (part.begin == part.end) return;
  const RowPlan& plan = job.plan;
  const Index row = plan.row_of[part.slot];
  const BackwardSteps<Real, Stored, Sequence, Cell::gates> steps(job, outputs, part.slot);
  StepsOfRow<Stored> gradients[Cell::gates];
  for (int g = 0; g < Cell::gates; ++g) gradients[g] = {job.dgate[g].rows, row};
  const StepsAhead<Stored, Sequence, Cell::gates> ahead(steps, part);
  FlowingBack<all, Real, Sequence> flow(steps.dy, part, plan, carry);
  Index t = plan.time(part.slot, part.end - 1);
  for (Index step = part.end - 1; step >= part.begin; --step) {
    const Index t_before = plan.time(part.slot, step - 1);
    const Stored* gates[Cell::gates];
    steps.gate.at(t, gates);
    const bool clear = plan.resets(part.slot, step);
    const Real* const restart = clear ? job.restarts.at(row, t) : nullptr;
    Real* const drestart = clear ? job.drestarts.at(row, t) : nullptr;
    flow.set_step(step, t_before);
    const auto before = steps.state_before(step, t_before);
    Stored* out[Cell::gates];
    for (int g = 0; g < Cell::gates; ++g) out[g] = gradients[g].at(t);
    ForEachVector<Real>(part, [&](Index channel, Index count) HWY_ATTR {
      ahead.ask(gates, flow.before(), before.output, channel);
      V wx[Cell::gates], dwx[Cell::gates];
      LoadGates<Real, Cell>(gates, channel, count, wx);
      const V dh = flow.load(channel, count);
      const V previous = clear ? Restarted<Real>(restart, channel, count) : before.load(channel, count);
      const auto gates_step = GradientsAt<Cell>(job, {channel, count, row, t}, wx, dh * previous, dh, dwx);
      for (int g = 0; g < Cell::gates; ++g) {
        const GateSink<Stored>& sink = job.dgate[g];
        StoreStored(dwx[g], out[g] + channel / L::lanes * sink.vector_stride, sink.padded ? L::lanes : count);
      }
      flow.pass(gates_step.step(), dh, clear, channel, count);
      if (drestart != nullptr) flow.leave(gates_step.step(), dh, drestart, channel, count);
    });
    t = t_before;
  }
}

template <class Real, class Cell, class Stored = Real>
void RunScanBackward(const ScanBackward<Real, Stored>& job, const ScanPart& part, Real* carry) {
  WithOutputs(job, [&](const auto& outputs) HWY_ATTR {
    if constexpr (!Cell::splits_gain) {
      StepBackwards<false, Real, Cell>(job, outputs, part, carry);
    } else {
      ForSplitChannels<Cell>(part, [&](const ScanPart& some) HWY_ATTR {
        RepeatIfInfinite(some, job.plan.reset == nullptr, carry, [&](auto all) HWY_ATTR {
          StepBackwards<decltype(all)::value, Real, Cell>(job, outputs, some, carry);
        });
      });
    }
  });
}

template <class Real, class Cell, class Stored, class Sequence>
HWY_INLINE void SummariseBackwards(const ScanBackward<Real, Stored>& job, const OutputRows<Sequence>& outputs,
                                   const ScanPart& part, const ScanEffect<Real>& effect) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const RowPlan& plan = job.plan;
  const BackwardSteps<Real, Stored, Sequence, Cell::gates> steps(job, outputs, part.slot);
  Begin<Real>(part, effect);
  if (part.begin == part.end) return;
  FlowingBack<false, Real, Sequence> flow(steps.dy, part, plan, effect.offset);
  for (Index step = part.end - 1; step >= part.begin; --step) {
    const Stored* gates[Cell::gates];
    steps.gate.at(plan.time(part.slot, step), gates);
    flow.set_step(step, plan.time(part.slot, step - 1));
    const bool clear = plan.resets(part.slot, step);
    ForEachVector<Real>(part, [&](Index channel, Index count) HWY_ATTR {
      V wx[Cell::gates];
      LoadGates<Real, Cell>(gates, channel, count, wx);
      const auto by = StepAt<Cell>(job, {channel, count}, wx);
      const V dh = flow.load(channel, count);
      flow.pass(by, dh, clear, channel, count);
      MultiplyGain(by, clear, effect, channel, count);
    });
  }
}

template <class Real, class Cell, class Stored = Real>
void RunScanBackwardSummary(const ScanBackward<Real, Stored>& job, const ScanPart& part,
                            const ScanEffect<Real>& effect) {
  WithOutputs(job, [&](const auto& outputs) HWY_ATTR {
    ForSplitChannels<Cell>(
        part, [&](const ScanPart& some) HWY_ATTR { SummariseBackwards<Real, Cell>(job, outputs, some, effect); });
  });
}
