// State and work of a thread for a block of units and a row in forward passes over clusters, for both ways of
// exchanging h.
//
// Needs cluster.cuh.

/// A word of R [D, D] of one gate: `column` is the first of the word's values.
PENSTOCK_DEVICE unsigned MatrixWord(const char* gate, int row, int column) {
  if constexpr (kSingles) {
    // Without branches, after which the next word would wait for this one.
    const unsigned short* const p = (const unsigned short*)gate + (Index)row * kHead + column;
    const unsigned first = row < kHead && column < kHead ? p[0] : 0;
    return first | (row < kHead && column + 1 < kHead ? p[1] : 0) << 16;
  } else {
    if (row >= kHead || column >= kHead) return 0;
    const char* p = gate + ((Index)row * kHead + column) * kBytes;
    return *(const unsigned*)p;
  }
}

/// The piece of its block that a lane holds once the 8 lanes of the block have shared their values: of halves all of
/// it, of floats the half that the lane's own unit is in.
template <class Storage>
PENSTOCK_DEVICE uint4 ShareValues(float value, int lane) {
  constexpr unsigned all = 0xffffffffu;
  if constexpr (Storage::bytes == 2) {
    const float other = __shfl_xor_sync(all, value, 1);
    const unsigned pair = lane & 1 ? Storage::narrow(other, value) : Storage::narrow(value, other);
    const unsigned next = __shfl_xor_sync(all, pair, 2);
    const unsigned low = lane & 2 ? next : pair, high = lane & 2 ? pair : next;
    const unsigned other_low = __shfl_xor_sync(all, low, 4), other_high = __shfl_xor_sync(all, high, 4);
    return lane & 4 ? make_uint4(other_low, other_high, low, high) : make_uint4(low, high, other_low, other_high);
  } else {
    const unsigned own = __float_as_uint(value), other = __shfl_xor_sync(all, own, 1);
    const unsigned low = lane & 1 ? other : own, high = lane & 1 ? own : other;
    const unsigned other_low = __shfl_xor_sync(all, low, 2), other_high = __shfl_xor_sync(all, high, 2);
    return lane & 2 ? make_uint4(other_low, other_high, low, high) : make_uint4(low, high, other_low, other_high);
  }
}

/// Bytes from a step to the one after it.
struct ForwardStrides {
  Index wx, y, sums, states;

  PENSTOCK_DEVICE ForwardStrides of(const DenseForwardArguments& args) {
    const Index sign = kDescending ? -1 : 1;
    return {sign * args.wx.step_stride, sign * args.y.step_stride, sign * args.sums.step_stride,
            sign * args.states.step_stride};
  }
};

/// Results of the cell for a step at one unit and row, besides its states.
struct CellForward {
  float kept[kGates], entered[kStates];  // for the backward pass
  uint4 sent;                            // of h with which the next step starts, as ShareValues() gives it
  float after[kStates];                  // the states after the step, where a reset may change what follows
};

/// Pieces of the gates of a block of units that a lane moves: more than one of five gates of floats.
constexpr int kGatePieces = kWhole ? (kGates * kPieces + 7) / 8 : 1;

/// Returns the bytes from a lane's first piece of them to its piece `i`.
PENSTOCK_DEVICE Index GateStep(int i, int hidden) { return (Index)(i * 8 / kPieces) * hidden * kBytes; }

/// The step whose reset the first step looks at: with given states, its h is sent before it starts.
constexpr int kFlagged = kRestarts ? 1 : 0;

/// State of a thread for one block of units and one row.
struct Slot {
  Place place;
  float state[kStates], bias_ih[kGates], bias_hh[kGates];
  Learnt learnt;
  ValuesAhead<kGates> ahead;
  const char* wx;  // of the step to be loaded next
  char* y;         // of the step at hand, as `sums` and `states`
  char* sums;
  char* states;
  int reset_flag;          // of the step at hand; with given states, of the one after it
  int reset_ahead;         // that of the next step
  float restart[kStates];  // with which the step after this one starts after a reset

  __device__ __forceinline__ void init(const DenseForwardArguments& args, int head) {
    const Row& row = place.row;
    const int channel = place.channel(head), lane = threadIdx.x % 8;
    const Index value = kWhole ? (Index)(lane / kPieces) * args.hidden * kBytes + lane % kPieces * 16 : 0;
    wx = row.at(args.wx, 0, kDescending) + (Index)channel * kBytes + value;
    y = row.at(args.y, 0, kDescending) + (Index)channel * kBytes + (kWhole ? lane / (8 / kPieces) * 16 : 0);
    sums = states = nullptr;
    if (args.sums.data != nullptr) sums = row.at(args.sums, 0, kDescending) + (Index)channel * kBytes + value;
    if (args.states.data != nullptr) {
      states = row.at(args.states, 0, kDescending) + (Index)(head * kHead + place.unit) * 4;
    }
    reset_ahead = ResetFlag(args.rows, row, kFlagged);
    learnt.read(args.learnt, args.hidden, head * kHead + place.unit, place.exists);
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      state[i] = ReadState(args.state_in, i, place, args.rows.rows, args.hidden, head);
      if (kRestarts && place.exists && ResetsAt(args.rows, row, 0)) {
        state[i] = RestartState(args.rows, row, 0, i, head * kHead + place.unit);
      }
    }
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      const Index at = (Index)g * args.hidden + head * kHead + place.unit;
      bias_ih[g] = args.bias_ih != nullptr && place.exists ? args.bias_ih[at] : 0.0f;
      bias_hh[g] = args.bias_hh != nullptr && place.exists ? args.bias_hh[at] : 0.0f;
      // Where only the sum counts, one register will do.
      if constexpr (!DenseCell::split) bias_hh[g] += bias_ih[g], bias_ih[g] = 0.0f;
    }
    Arrive(state), Arrive(bias_ih), Arrive(bias_hh), Arrive(learnt.of);
  }

  /// Starts to load W x of the next step to load.
  __device__ __forceinline__ void fetch(char* ring, int lane, bool exists, const DenseForwardArguments& args,
                                        Index stride) {
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < kGatePieces; ++i) {
        const int piece = i * 8 + lane % 8;
        if (piece < kGates * kPieces) CopyAsync<16>(ring + piece * 16, wx + GateStep(i, args.hidden), exists);
      }
    } else {
      const auto at = [&](int g) { return (g * 8 + lane % 8) * kBytes; };
      ahead.next(ring, at);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        if (ahead.moves()) ahead.fetch(g, ring + at(g), wx + (Index)g * args.hidden * kBytes, exists);
      }
    }
    wx += stride;
  }

  /// W x of a step, which fetch() has laid there.
  __device__ __forceinline__ void read_input(const char* ring, int lane, Real (&wx)[kGates]) const {
#pragma unroll
    for (int g = 0; g < kGates; ++g) wx[g] = Real(LoadOne(ring + (g * 8 + lane % 8) * kBytes) + bias_ih[g]);
  }

  /// Takes the flag of the step, and starts to load the states of a reset.
  __device__ __forceinline__ void load_restart(const DenseRows& rows, int step, int head) {
    reset_flag = Held(reset_ahead);
    if constexpr (kRestarts) {
      const bool wanted = IsSet(reset_flag);
#pragma unroll
      for (int i = 0; i < kStates; ++i) {
        restart[i] = wanted ? RestartState(rows, place.row, step + 1, i, head * kHead + place.unit) : 0.0f;
      }
    }
  }
  /// Starts to load the next step's flag.
  __device__ __forceinline__ void load_flag(const DenseRows& rows, int step) {
    reset_ahead = ResetFlag(rows, place.row, step + kFlagged + 1);
  }

  /// Takes the states that the cell has made or, before a reset, those with which the next step starts.
  __device__ __forceinline__ void leave(const Real (&next)[kStates], int step, int lane, CellForward& result) {
    const bool live = step < place.row.length;
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      result.after[i] = live ? next[i].value : state[i];
      state[i] = kRestarts && IsSet(reset_flag) ? restart[i] : result.after[i];
    }
    result.sent = ShareValues<Storage>(state[0], lane);
  }

  /// Fills in what the cell reads, and what the backward pass needs of it.
  template <class Product>
  __device__ __forceinline__ CellForward enter(const Real (&wx)[kGates], const Product& product, Real (&rh)[kGates],
                                               Real (&prev)[kStates]) const {
    CellForward result;
    const bool reset = !kRestarts && IsSet(reset_flag);
#pragma unroll
    for (int g = 0; g < kGates; ++g) {
      rh[g] = Real((reset ? 0.0f : product(g)) + bias_hh[g]);
      result.kept[g] = DenseCell::kept(wx[g], rh[g]).value;
    }
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      result.entered[i] = reset ? 0.0f : state[i], prev[i] = Real(result.entered[i]);
    }
    return result;
  }

#ifdef PENSTOCK_MEANS
  /// Returns the place of the row's means on the tape of the step at hand.
  __device__ __forceinline__ char* means(int head, const DenseForwardArguments& args) const {
    const Index behind = (Index)(kStates - 1) * args.hidden + (Index)head * kTapedFloats;
    return states + (behind - (head * kHead + place.unit)) * 4;
  }
#else
  /// Applies the cell to the states; product(gate): R h.
  template <class Product>
  __device__ __forceinline__ CellForward apply(const Real (&wx)[kGates], int step, int lane, const Product& product) {
    Real rh[kGates], prev[kStates], next[kStates], save[kSaved];
    CellForward result = enter(wx, product, rh, prev);
    if (kApplies) {
      DenseCell::forward<Rule>(wx, rh, prev, learnt, next, save);
    } else {
      for (int i = 0; i < kStates; ++i) next[i] = wx[0] + rh[0] + wx[kGates - 1] + rh[kGates - 1] + prev[i];
    }
    leave(next, step, lane, result);
    return result;
  }
#endif

  /// Writes what a step has made, and goes on to the next one. `kept`: 16-byte aligned space of the block's lanes.
  __device__ __forceinline__ void store(const CellForward& made, int step, char* kept, int lane, int head,
                                        const DenseForwardArguments& args, const ForwardStrides& strides) {
    const bool live = step < place.row.length;
    uint4 piece = made.sent;
    if constexpr (kRestarts && kWhole) {
      if (__any_sync(0xffffffffu, IsSet(reset_flag))) piece = ShareValues<Storage>(made.after[0], lane);
    }
    if (live) {
      if constexpr (kWhole) {
        if (lane % (8 / kPieces) == 0) StorePiece(y, piece);
      } else {
        StoreOne(y, made.after[0]);
      }
    }
    y += strides.y;
    if constexpr (kTraining) {
      store_tape(made, kept, lane % 8, live, args);
      sums += strides.sums, states += strides.states;
    }
    if constexpr (kEveryState) {
      if (live) {
        float* const to = every_state(place, step, head, args);
#pragma unroll
        for (int i = 1; i < kStates; ++i) __stcs(to + (Index)(i - 1) * args.hidden, made.after[i]);
      }
    }
  }

  /// Writes zeros beyond the row's length and the last states; call it after the last step. `p` is this slot's place.
  __device__ __forceinline__ void finish(const Place& p, int head, const DenseForwardArguments& args) const {
    ClearPadding(args.y, p, head, 1, 0);
    if constexpr (kEveryState) {
      for (int step = p.row.length; p.exists && step < p.row.padded; ++step) {
        float* const to = every_state(p, step, head, args);
        for (int i = 1; i < kStates; ++i) to[(Index)(i - 1) * args.hidden] = 0.0f;
      }
    }
    if (args.state_out == nullptr || !p.exists) return;
#pragma unroll
    for (int i = 0; i < kStates; ++i) {
      args.state_out[((Index)i * args.rows.rows + p.row.number) * args.hidden + head * kHead + p.unit] = state[i];
    }
  }

 private:
  PENSTOCK_DEVICE float* every_state(const Place& p, int step, int head, const DenseForwardArguments& args) {
    return (float*)p.row.at(args.every_state, step, kDescending) + head * kHead + p.unit;
  }

  /// Stores what the backward pass needs.
  __device__ __forceinline__ void store_tape(const CellForward& made, char* kept, int lane, bool live,
                                             const DenseForwardArguments& args) {
    const Index gate = (Index)args.hidden * kBytes;
    if constexpr (kWhole) {
      __syncwarp();
#pragma unroll
      for (int g = 0; g < kGates; ++g) KeepOne(kept + (g * 8 + lane) * kBytes, made.kept[g]);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kGatePieces; ++i) {
        const int piece = i * 8 + lane;
        if (live && piece < kGates * kPieces) {
          StorePiece(sums + GateStep(i, args.hidden), *(const uint4*)(kept + piece * 16));
        }
      }
    } else if (live) {
      for (int g = 0; g < kGates; ++g) StoreOne(sums + g * gate, made.kept[g]);
    }
#pragma unroll
    for (int i = 1; i < kStates; ++i) {
      if (live) __stcs((float*)states + (Index)(i - 1) * args.hidden, made.entered[i]);
    }
  }
};
