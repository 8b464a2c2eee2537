// State and work of a thread for a block of units and a row in backward passes over clusters, for both ways of
// exchanging gradients.
//
// Needs cluster.cuh.

constexpr int kFloatPieces = ClusterShape::float_pieces;

/// A word of the transpose of one gate of R [D, D]: `unit` is the first of the word's values.
PENSTOCK_DEVICE unsigned TransposedWord(const char* gate, int unit, int row) {
  if (row >= kHead || unit >= kHead) return 0;
  const char* const p = gate + ((Index)unit * kHead + row) * kBytes;
  if constexpr (kBytes == 4) {
    return *(const unsigned*)p;
  } else {
    return LoadBits<Storage>(p) | (unit + 1 < kHead ? LoadBits<Storage>(p + kHead * kBytes) << 16 : 0);
  }
}

/// The values that a step reads of each unit, in the order in which a block's pieces of them lie in shared memory.
struct Inputs {
  static constexpr int wx = kGates, states = kGates * (1 + DenseCell::split), dy = states + kStates - 1, h = dy + 1;
  static constexpr int means = h + 1;  // all of a row, for each of its blocks
  static constexpr int count = means + kMeans, pieces = kShape.read_pieces(), loads = (pieces + 7) / 8;
  PENSTOCK_DEVICE constexpr bool is_state(int value) { return value >= states && value < dy; }
  /// Without a loop, which the compiler would leave in each step.
  PENSTOCK_DEVICE constexpr int first_piece(int value) {
    const int floats = value < states ? 0 : (value < dy ? value : dy) - states;
    return value * kPieces + floats * (kFloatPieces - kPieces) + (value > means ? kTapedFloats / 4 - kPieces : 0);
  }
  PENSTOCK_DEVICE constexpr int pieces_of(int value) { return first_piece(value + 1) - first_piece(value); }
  /// The tensors that they come from: each has its values side by side, from `first_of` on.
  static constexpr int tensors = 5 + kMeans;
  PENSTOCK_DEVICE constexpr int tensor_of(int value) {
    return value < kGates ? 0 : value < states ? 1 : value < dy ? 2 : 3 + value - dy;
  }
  PENSTOCK_DEVICE constexpr int first_of(int tensor) {
    return tensor == 0 ? 0 : tensor == 1 ? wx : tensor == 2 ? states : dy + tensor - 3;
  }
};
static_assert(Inputs::first_piece(Inputs::count) == kShape.read_pieces());

/// Bytes from a step to the one after it.
struct BackwardStrides {
  Index dwx, drh;

  PENSTOCK_DEVICE BackwardStrides of(const DenseBackwardArguments& args) {
    const Index sign = kDescending ? -1 : 1;
    return {sign * args.dwx.step_stride, sign * args.drh.step_stride};
  }
};

/// The cell at one unit and row: what it computes anew of the forward pass, and the gradients that come from above.
struct CellBackward {
  Real save[kSaved], prev[kStates];
  float dy, dstates[kStates];  // of the states but h, in their order, from 1 on
};

/// Writes values of a block, `stride` bytes apart; source(value, piece): its 16 bytes in shared memory.
template <class Source>
PENSTOCK_DEVICE void StoreBlock(char* to, int lane, int values, Index stride, const Source& source) {
  if constexpr (kWhole) {
#pragma unroll
    for (int first = 0; first < values * kPieces; first += 8) {
      const int i = first + lane;
      if (i >= values * kPieces) continue;
      StorePiece(to + i / kPieces * stride + i % kPieces * 16, *(const uint4*)source(i / kPieces, i % kPieces));
    }
  } else {
    using Moved = Vector<Storage, kLaneValues>;
#pragma unroll
    for (int first = 0; first < values; first += kLaneValues) {
      const int v = first + lane % kLaneValues, unit = lane - lane % kLaneValues;
      if (v >= values) continue;
      const char* const from = source(v, unit / kPieceValues) + unit % kPieceValues * kBytes;
      Moved::read(from).store(to + v * stride - (lane - unit) * kBytes);
    }
  }
}

/// State of a thread for one block of units and one row.
struct Slot {
  static constexpr int kAfter = 1, kThis = 2, kBefore = 4;  // bits of `resets`

  Place place;
  float carried[kStates];  // gradients of the states that left the step at hand, without what flows through R
  float bias_ih[kGates];
  Learnt learnt, dlearnt;  // dlearnt: of the steps so far
  ValuesAhead<Inputs::count> ahead;
  const char* from[kWhole ? Inputs::loads : Inputs::tensors];  // of the step to be loaded next
  Index stride[kWhole ? Inputs::loads : 1];
  char* dwx;  // of the step at hand, as `drh`
  char* drh;
  int resets;           // bits: the step that follows this one, this one, and the one before it
  int reset_ahead;      // flag of the step two before this one
  float restart;        // h with which this step starts after a reset
  float after_restart;  // gradient of the h with which the step that follows this one started
  float entered[1];     // of single halves: h with which the first step starts

  /// Returns the address of a value, for the first unit that this lane moves.
  __device__ __forceinline__ const char* address(const DenseBackwardArguments& args, int head, int value,
                                                 int step) const {
    const Row& row = place.row;
    const Index channel = place.channel(head), gate = (Index)args.hidden * kBytes;
    if (value < kGates) return row.at(args.sums, step, kDescending) + value * gate + channel * kBytes;
    if (value < Inputs::states)
      return row.at(args.wx, step, kDescending) + (value - Inputs::wx) * gate + channel * kBytes;
    if (value < Inputs::dy) {
      return row.at(args.states, step, kDescending) + ((Index)(value - Inputs::states) * args.hidden + channel) * 4;
    }
#ifdef PENSTOCK_MEANS
    if (value == Inputs::means) return AddressOfMeans(args.states, row, step, args.hidden, head);
#endif
    if (value < Inputs::h)
      return args.dy.data == nullptr ? nullptr : row.at(args.dy, step, kDescending) + channel * kBytes;
    return row.at(args.y, step - 1, kDescending) + channel * kBytes;
  }
  PENSTOCK_DEVICE Index step_stride(const DenseBackwardArguments& args, int value) {
    const DenseTensor& tensor = value < kGates           ? args.sums
                                : value < Inputs::states ? args.wx
                                : value < Inputs::dy     ? args.states
                                : value < Inputs::h      ? args.dy
#ifdef PENSTOCK_MEANS
                                : value == Inputs::means ? args.states
#endif
                                                         : args.y;
    return kDescending ? tensor.step_stride : -tensor.step_stride;
  }

  __device__ __forceinline__ void init(const DenseBackwardArguments& args, int head, int last) {
    const Row& row = place.row;
    const Index channel = (Index)place.channel(head) * kBytes;
    dwx = row.at(args.dwx, row.length - 1, kDescending) + channel;
    drh = nullptr;
    if constexpr (DenseCell::split) drh = row.at(args.drh, row.length - 1, kDescending) + channel;
    resets =
        (ResetFlag(args.rows, row, last) != 0 ? kThis : 0) | (ResetFlag(args.rows, row, last - 1) != 0 ? kBefore : 0);
    if constexpr (kRestarts) {
      restart = resets_at(kThis) ? RestartState(args.rows, row, last, 0, head * kHead + place.unit) : 0.0f;
      after_restart = 0.0f;
    }
    learnt.read(args.learnt, args.hidden, head * kHead + place.unit, place.exists);
    dlearnt.clear();
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      carried[i] = ReadState(args.dstate_out, i, place, args.rows.rows, args.hidden, head);
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      bias_ih[g] = 0.0f;
      if (DenseCell::split && args.bias_ih != nullptr && place.exists) {
        bias_ih[g] = args.bias_ih[(Index)g * args.hidden + head * kHead + place.unit];
      }
    }
    entered[0] = kSingles ? ReadState(args.state_in, 0, place, args.rows.rows, args.hidden, head) : 0.0f;
    Arrive(carried), Arrive(bias_ih), Arrive(learnt.of), Arrive(entered);
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < Inputs::loads; ++i) {
        const int piece = i * 8 + threadIdx.x % 8;
        from[i] = nullptr, stride[i] = 0;
        for (int v = 0; v < Inputs::count; ++v) {
          const int first = Inputs::first_piece(v);
          if (piece < first || piece >= first + Inputs::pieces_of(v) || !place.exists) continue;
          // Rows that end before the last step begin where they end.
          const char* const start = address(args, head, v, place.row.length - 1);
          stride[i] = step_stride(args, v);
          if (start != nullptr) from[i] = start + (piece - first) * 16;
        }
      }
    } else {
#pragma unroll
      for (int t = 0; t < Inputs::tensors; ++t) {
        const int v = Inputs::first_of(t);
        from[t] = place.exists && v < Inputs::count ? address(args, head, v, place.row.length - 1) : nullptr;
      }
    }
  }

  /// Starts to load what step `step` reads; steps come in decreasing order.
  __device__ __forceinline__ void fetch(char* ring, int lane, int step, const DenseBackwardArguments& args, int head) {
    const bool exists = step >= 0 && step < place.row.length;
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < Inputs::loads; ++i) {
        const int piece = i * 8 + lane;
        if (piece >= Inputs::pieces) continue;
          // No h of before the first step; the state that entered it is not in storage.
#ifdef PENSTOCK_MEANS
        const bool is_h = piece >= Inputs::first_piece(Inputs::h) && piece < Inputs::first_piece(Inputs::means);
#else
        const bool is_h = piece >= Inputs::first_piece(Inputs::h);
#endif
        CopyAsync<16>(ring + piece * 16, from[i],
                      exists && from[i] != nullptr && (!is_h || HasOutputBefore(args.rows, step)));
        if (exists) from[i] += stride[i];
      }
    } else {
      const auto at = [&](int v) { return Inputs::first_piece(v) * 16 + lane * kBytes; };
      ahead.next(ring, [&](int v) { return Inputs::is_state(v) || v == Inputs::means ? -1 : at(v); });
      const bool has_h = exists && HasOutputBefore(args.rows, step), has_dy = exists && args.dy.data != nullptr;
      const auto address_of = [&](int v) {
        const int tensor = Inputs::tensor_of(v), of_tensor = v - Inputs::first_of(tensor);
        return from[tensor] + (Index)of_tensor * args.hidden * (Inputs::is_state(v) ? 4 : kBytes);
      };
#pragma unroll
      for (int v = Inputs::states; v < Inputs::dy; ++v) {
        CopyAsync<4>(ring + Inputs::first_piece(v) * 16 + lane * 4, address_of(v), exists);
      }
#ifdef PENSTOCK_MEANS
      char* const means = ring + Inputs::first_piece(Inputs::means) * 16;
      for (int i = 0; i < kTapedFloats && lane == 0; ++i) {
        CopyAsync<4>(means + i * 4, address_of(Inputs::means) + i * 4, exists);
      }
#endif
      if (ahead.moves()) {
#pragma unroll
        for (int v = 0; v <= Inputs::h; ++v) {
          if (Inputs::is_state(v)) continue;
          const bool wanted = v == Inputs::h ? has_h : v == Inputs::dy ? has_dy : exists;
          ahead.fetch(v, ring + at(v), address_of(v), wanted);
        }
      }
#pragma unroll
      for (int t = 0; t < Inputs::tensors; ++t) {
        if (exists) from[t] += step_stride(args, Inputs::first_of(t));
      }
    }
  }

  PENSTOCK_DEVICE float read(const char* ring, int lane, int value) {
    const char* const p = ring + Inputs::first_piece(value) * 16;
    return Inputs::is_state(value) ? ((const float*)p)[lane] : LoadOne(p + lane * kBytes);
  }

  /// Reads what the forward pass of a step had, and the gradients that come from above.
  __device__ __forceinline__ CellBackward read_step(const char* ring, int step, int lane, int head,
                                                    const DenseBackwardArguments& args, Real (&wx)[kGates],
                                                    Real (&rh)[kGates]) const {
    CellBackward cell;
    const bool reset = resets_at(kThis);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      rh[g] = Real(read(ring, lane % 8, g));
      wx[g] =
          Real(DenseCell::split ? read(ring, lane % 8, Inputs::wx + (DenseCell::split ? g : 0)) + bias_ih[g] : 0.0f);
    }
    float h = read(ring, lane % 8, Inputs::h);
    if (!HasOutputBefore(args.rows, step)) {
      h = kSingles ? entered[0] : ReadState(args.state_in, 0, place, args.rows.rows, args.hidden, head);
    }
    if (reset) h = kRestarts ? restart : 0.0f;
    cell.prev[0] = Real(h);
#pragma unroll
    for (int k = 1; k < kStates; ++k) {
      // What entered after a reset is on the tape, too.
      cell.prev[k] = Real(reset && !kRestarts ? 0.0f : read(ring, lane % 8, Inputs::states + k - 1));
      cell.dstates[k] = 0.0f;
    }
    if constexpr (kEveryState) {
      if (args.dstates.data != nullptr && step < place.row.length) {
        const float* const from = (const float*)place.row.at(args.dstates, step, kDescending) + head * kHead;
        for (int k = 1; k < kStates; ++k) cell.dstates[k] = from[(Index)(k - 1) * args.hidden + place.unit];
      }
    }
    cell.dy = read(ring, lane % 8, Inputs::dy);
    return cell;
  }
#ifndef PENSTOCK_MEANS
  /// The forward pass of a step anew, from what fetch() has laid there.
  __device__ __forceinline__ CellBackward redo(const char* ring, int step, int lane, int head,
                                               const DenseBackwardArguments& args) const {
    Real wx[kGates], rh[kGates], next[kStates];
    CellBackward cell = read_step(ring, step, lane, head, args, wx, rh);
    DenseCell::forward<Rule>(wx, rh, cell.prev, learnt, next, cell.save);
    return cell;
  }
#endif

  /// Returns the gradient that a step passes on to the h before it; `through`: its part that flows through R. At a
  /// reset, that of the h with which the row started again is kept for store(), and nothing passes.
  __device__ __forceinline__ float passed_on(float through, int step, const DenseBackwardArguments& args) {
    const bool reset = resets_at(kAfter);
    const float all = carried[0] + (reset && !kRestarts ? 0.0f : through);
    const float passed = step < place.row.length ? Clipped(all, args.clip) : all;
    if constexpr (kRestarts) after_restart = passed;
    return kRestarts && reset ? 0.0f : passed;
  }

  __device__ __forceinline__ bool resets_at(int bit) const { return kReset && (resets & bit) != 0; }

  /// Starts to load the h of a reset before the previous step.
  __device__ __forceinline__ void load_restart(const DenseRows& rows, int step, int head) {
    if constexpr (kRestarts) {
      restart = resets_at(kBefore) ? RestartState(rows, place.row, step - 1, 0, head * kHead + place.unit) : 0.0f;
    }
  }
  /// Starts to load the flag of the step before that one.
  __device__ __forceinline__ void load_flag(const DenseRows& rows, int step) {
    reset_ahead = ResetFlag(rows, place.row, step - 2);
  }

  /// Adds to the gradient of state k with which the row started again before a step. Only this thread adds there, one
  /// step after the other, so the order of the sum is always the same. Nothing waits for the memory.
  __device__ __forceinline__ void add_restart(float gradient, int k, int step, int head,
                                              const DenseBackwardArguments& args) const {
    if (args.drestarts == nullptr || !place.exists) return;
    const Index row = place.row.number * args.drestart_row, time = place.row.time(step, kDescending);
    float* const to = args.drestarts + k * args.drestart_state + row + time * args.rows.restart_step;
    atomicAdd(to + head * kHead + place.unit, gradient);
  }

  /// Finds the gradients of the states after a step.
  __device__ __forceinline__ void enter(const CellBackward& cell, float through, int step,
                                        const DenseBackwardArguments& args, Real (&dnext)[kStates]) {
    dnext[0] = Real(passed_on(through, step + 1, args) + cell.dy);
#pragma unroll
    for (int k = 1; k < kStates; ++k) dnext[k] = Real(kEveryState ? carried[k] + cell.dstates[k] : carried[k]);
  }

  /// Takes the gradients of the states before a step, and clears those of gates if the row has no such step.
  __device__ __forceinline__ void leave(const Real (&dprev)[kStates], int step, Real (&drh)[kGates]) {
    const bool live = step < place.row.length, reset = resets_at(kThis);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      // Those of given states wait for store(), that of h also for what flows through R.
      if (live) carried[k] = reset && !kRestarts ? 0.0f : dprev[k].value;
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      if (!live) drh[g] = Real(0.0f);
    }
  }
#ifndef PENSTOCK_MEANS
  /// The cell's backward pass. `through`: what flows through R of the step after this one.
  __device__ __forceinline__ void differentiate(const CellBackward& cell, float through, int step,
                                                const DenseBackwardArguments& args, Real (&dwx)[kGates],
                                                Real (&drh)[kGates]) {
    Real dnext[kStates], dprev[kStates], of_learnt[Learnt::places];
    enter(cell, through, step, args, dnext);
    if (kApplies) {
      DenseCell::backward<Rule>(cell.save, cell.prev, learnt, dnext, of_learnt, dwx, drh, dprev);
      if (step < place.row.length) dlearnt.add(of_learnt);
    } else {
      for (int g = 0; g < kGates; ++g) dwx[g] = drh[g] = dnext[0] * cell.save[0];
      for (int k = 0; k < kStates; ++k) dprev[k] = dnext[k];
    }
    leave(dprev, step, drh);
  }
#endif

  /// Writes the gradients of a step, and goes on to the one before it. own_gate(gate, piece): where the block's
  /// gradients of R h lie in shared memory; `out`: space for those of W x, where they differ.
  template <class OwnGate>
  __device__ __forceinline__ void store(const Real (&dwxs)[kGates], int step, char* out, int lane, int head,
                                        const OwnGate& own_gate, const DenseBackwardArguments& args,
                                        const BackwardStrides& strides) {
    const Index gate_stride = (Index)args.hidden * kBytes;
    __syncwarp();
    if constexpr (DenseCell::split) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) KeepOne(out + (g * 8 + lane % 8) * kBytes, dwxs[g].value);
      __syncwarp();
    }
    if (step < place.row.length) {
      const auto kept = [&](int v, int piece) { return out + (v * kPieces + piece) * 16; };
      if constexpr (DenseCell::split) {
        StoreBlock(dwx, lane % 8, kGates, gate_stride, kept);
        StoreBlock(drh, lane % 8, kGates, gate_stride, own_gate);
        drh -= strides.drh;
      } else {
        StoreBlock(dwx, lane % 8, kGates, gate_stride, own_gate);
      }
      dwx -= strides.dwx;
    }
    if constexpr (kRestarts) {
      if (resets_at(kAfter)) add_restart(after_restart, 0, step + 1, head, args);
#pragma unroll
      for (int k = 1; k < kStates; ++k) {
        if (resets_at(kThis)) add_restart(carried[k], k, step, head, args), carried[k] = 0.0f;
      }
    }
    if constexpr (kReset) resets = resets >> 1 | (IsSet(reset_ahead) ? kBefore : 0);
  }

  /// Writes zeros beyond the row's length and the gradients of the states that came in; call it after the first step.
  /// `p` is this slot's place; `through`: the gradient through R of the first step.
  template <class Through>
  __device__ __forceinline__ void finish(const Place& p, int head, const DenseBackwardArguments& args,
                                         const Through& through) {
    const Index gate_stride = (Index)args.hidden * kBytes;
    ClearPadding(args.dwx, p, head, kGates, gate_stride);
    if constexpr (DenseCell::split) ClearPadding(args.drh, p, head, kGates, gate_stride);
    if (p.exists) dlearnt.add_to(args.dlearnt, p.row.number, args.hidden, head * kHead + p.unit);
    if (args.dstate_in == nullptr || !p.exists) return;
    carried[0] = passed_on(through(), 0, args);
    if (kRestarts && resets_at(kAfter)) add_restart(after_restart, 0, 0, head, args);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      args.dstate_in[((Index)i * args.rows.rows + p.row.number) * args.hidden + head * kHead + p.unit] = carried[i];
    }
  }
};
