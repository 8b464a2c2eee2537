// What a thread has and does of a block of units and a row in backward passes over clusters, whichever way gradients
// are exchanged.
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
  static constexpr int count = h + 1, pieces = kShape.read_pieces(), loads = (pieces + 7) / 8;
  PENSTOCK_DEVICE constexpr bool is_state(int value) { return value >= states && value < dy; }
  PENSTOCK_DEVICE constexpr int pieces_of(int value) { return is_state(value) ? kFloatPieces : kPieces; }
  PENSTOCK_DEVICE constexpr int first_piece(int value) {
    int at = 0;
    for (int v = 0; v < value; ++v) at += pieces_of(v);
    return at;
  }
};
static_assert(Inputs::first_piece(Inputs::count) == kShape.read_pieces());

/// What a thread has of one block and row.
struct Slot {
  Place place;
  float carried[kStates];  // gradients of the states that left the step at hand, without what flows through R
  float bias_ih[kGates];
  const char* from[kWhole ? Inputs::loads : 1];  // of the step to be loaded next
  Index stride[kWhole ? Inputs::loads : 1];
  char* dwx;  // of the step at hand, as `drh`
  char* drh;
  bool reset, reset_after;  // before this step, before the one that follows it

  /// Where a value lies, of the first unit that this lane moves.
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
    if (value < Inputs::h)
      return args.dy.data == nullptr ? nullptr : row.at(args.dy, step, kDescending) + channel * kBytes;
    return row.at(args.y, step - 1, kDescending) + channel * kBytes;
  }
  PENSTOCK_DEVICE Index step_stride(const DenseBackwardArguments& args, int value) {
    const DenseTensor& tensor = value < kGates           ? args.sums
                                : value < Inputs::states ? args.wx
                                : value < Inputs::dy     ? args.states
                                : value < Inputs::h      ? args.dy
                                                         : args.y;
    return kDescending ? tensor.step_stride : -tensor.step_stride;
  }

  __device__ __forceinline__ void init(const DenseBackwardArguments& args, int head, int last) {
    const Row& row = place.row;
    const Index channel = (Index)place.channel(head) * kBytes;
    dwx = row.at(args.dwx, row.length - 1, kDescending) + channel;
    drh = nullptr;
    if constexpr (DenseCell::split) drh = row.at(args.drh, row.length - 1, kDescending) + channel;
    reset = ResetsAt(args.rows, row, last);
    reset_after = false;
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
    }
  }

  /// Starts to load what step `step` reads; steps come in falling order.
  __device__ __forceinline__ void fetch(char* ring, int lane, int step, const DenseBackwardArguments& args, int head) {
    const bool exists = step >= 0 && step < place.row.length;
    if constexpr (kWhole) {
#pragma unroll
      for (int i = 0; i < Inputs::loads; ++i) {
        const int piece = i * 8 + lane;
        if (piece >= Inputs::pieces) continue;
        // No h of before the first step; the state that entered it is not in storage.
        const bool is_h = piece >= Inputs::first_piece(Inputs::h);
        CopyAsync<16>(ring + piece * 16, from[i], exists && from[i] != nullptr && (step > 0 || !is_h));
        if (exists) from[i] += stride[i];
      }
    } else {
      for (int v = 0; v < Inputs::count; ++v) {
        const char* const p = exists && (step > 0 || v != Inputs::h) ? address(args, head, v, step) : nullptr;
        char* const to = ring + Inputs::first_piece(v) * 16;
        if (Inputs::is_state(v)) {
          CopyAsync<4>(to + lane * 4, p, p != nullptr);
        } else {
          CopyAsync<kBytes>(to + lane * kBytes, p, p != nullptr);
        }
      }
    }
  }

  PENSTOCK_DEVICE float read(const char* ring, int lane, int value) {
    const char* const p = ring + Inputs::first_piece(value) * 16;
    return Inputs::is_state(value) ? ((const float*)p)[lane] : LoadOne(p + lane * kBytes);
  }
};

/// Writes values of a block, `stride` bytes apart; source(value, piece): its 16 bytes in shared memory.
template <class Source>
PENSTOCK_DEVICE void StoreBlock(char* to, int lane, int values, Index stride, const Source& source) {
  if constexpr (kWhole) {
    for (int i = lane; i < values * kPieces; i += 8) {
      StorePiece(to + i / kPieces * stride + i % kPieces * 16, *(const uint4*)source(i / kPieces, i % kPieces));
    }
  } else {
    for (int v = 0; v < values; ++v) {
      StoreOne(to + v * stride, LoadOne(source(v, lane / kPieceValues) + lane % kPieceValues * kBytes));
    }
  }
}
