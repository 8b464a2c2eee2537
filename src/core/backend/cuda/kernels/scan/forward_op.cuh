// The forward pass of a linear recurrence as an op. in[g] is value g of a step, of which a rule makes a and b; out[0]
// is y.
//
// kKeepTerms: a thread keeps a and b of its steps, as floats; otherwise it keeps the values as they lie in memory and
// makes the terms twice.

/// The gain and b of one channel from the values of all gates.
template <int kCount>
PENSTOCK_DEVICE void TermsOf(const Values (&value)[Rule::gates][kCount], int k, int i, const ChannelVectors& learnt,
                             float& a, float& b) {
  float wx[Rule::gates];
#pragma unroll
  for (int g = 0; g < Rule::gates; ++g) wx[g] = value[g][k].get(i);
  Affine<Rule>(wx, learnt.of[i], a, b);
}

struct KeptTerms {
  float a[kSteps][kVector], b[kSteps][kVector];

  template <class Source>
  __device__ __forceinline__ void load(const Source& source, const ChannelVectors& learnt) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      Values value[Rule::gates][1];
#pragma unroll
      for (int g = 0; g < Rule::gates; ++g) value[g][0] = source.at(g, k);
      for (int i = 0; i < kVector; ++i) TermsOf(value, 0, i, learnt, a[k][i], b[k][i]);
    }
  }
  __device__ __forceinline__ void get(int k, int i, float& a_k, float& b_k) const { a_k = a[k][i], b_k = b[k][i]; }
  __device__ __forceinline__ void forget() {}
};

struct RemadeTerms {
  Values value[Rule::gates][kSteps];
  ChannelVectors learnt;

  template <class Source>
  __device__ __forceinline__ void load(const Source& source, const ChannelVectors& vectors) {
    learnt = vectors;
#pragma unroll
    for (int g = 0; g < Rule::gates; ++g) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) value[g][k] = source.at(g, k);
    }
  }
  __device__ __forceinline__ void get(int k, int i, float& a, float& b) const { TermsOf(value, k, i, learnt, a, b); }
  __device__ __forceinline__ void forget() {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      for (int g = 0; g < Rule::gates; ++g) value[g][k].forget();
    }
  }
};

template <bool kKept>
struct TermsChoice {
  using Type = KeptTerms;
};
template <>
struct TermsChoice<false> {
  using Type = RemadeTerms;
};

/// Returns the state after a step that follows a reset.
PENSTOCK_DEVICE float Restarted(const Span& span, int k, int i, float a, float b) {
  return kRestarts ? Gain<Rule>::advance(a, span.restart(k, i), b) : b;
}

template <class Terms>
struct ForwardOpOver {
  static constexpr int kInputs = Rule::gates;
  static constexpr int kAhead = kInputs;  // no input is read a step ahead
  Terms terms;
  char* out;
  Index out_stride;

  template <class Source>
  __device__ __forceinline__ void load(const ScanArguments& args, const Span& span, const Source& source) {
    ChannelVectors learnt;
    learnt.read(args, span);
    terms.load(source, learnt);
  }

  __device__ __forceinline__ void compose(const Span& span, int k, float (&gain)[kVector],
                                          float (&offset)[kVector]) const {
    const bool again = span.starts_again(k);
    for (int i = 0; i < kVector; ++i) {
      float a, b;
      terms.get(k, i, a, b);
      offset[i] = again ? Restarted(span, k, i, a, b) : Gain<Rule>::advance(a, offset[i], b);
      gain[i] = again ? Gain<Rule>::reset() : Gain<Rule>::together(gain[i], a);
    }
  }

  __device__ __forceinline__ void start(const ScanArguments& args, const Place&, const Span& span) {
    terms.forget();
    out = span.at(args.out[0], span.begin);
    out_stride = span.stride(args.out[0]);
  }

  __device__ __forceinline__ void step(const Span& span, int k, float (&state)[kVector]) {
    const bool again = span.starts_again(k);
    for (int i = 0; i < kVector; ++i) {
      float a, b;
      terms.get(k, i, a, b);
      state[i] = again ? Restarted(span, k, i, a, b) : Gain<Rule>::advance(a, state[i], b);
    }
    Values::of(state).store(out);
    out += out_stride;
  }

  __device__ __forceinline__ void finish(const ScanArguments&, const Place&, const Span&) const {}

  PENSTOCK_DEVICE void clear_padding(const Span& span, const ScanArguments& args) {
    if constexpr (kLengths) ClearPadding(span, args.out[0]);
  }
};

using ForwardOp = ForwardOpOver<TermsChoice<kKeepTerms>::Type>;
