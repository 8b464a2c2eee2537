#pragma once

#include <cstddef>

#include "ops/training/loss.h"

/// Losses of sound, which judge a whole window of one sound: B rows of T samples, y and targets [B, T].
///
/// Each row with scored samples (weight 1) has a loss, esr ESR + dc DC + stft STFT with the factors of sound_parts().
/// Samples after the last scored one are left out; others that are not scored count as equal and silent. The loss of a
/// batch is the mean of its rows, weighted by their scored samples.
///
/// - ESR: power of the difference / power of the target, both after a pre-emphasis filter.
/// - DC: squared mean of the difference / power of the target.
/// - STFT (Yamamoto et al. 2020): spectral convergence + mean distance of the logarithms of the magnitudes, a mean of
///   the frame sizes that fit the row. Frames have Hann windows, lie inside the row and advance by a quarter.
///
/// Targets are scaled to a mean power of 1. Powers of targets are raised by 1e-4, -40 dB, so that pauses do not count
/// as much as music does.
namespace penstock::ops {

/// Samples of the longest frame of the STFT.
constexpr Index longest_frame = 1024;
/// Power that is added to that of a target.
constexpr double quiet_power = 1e-4;

/// Returns the bytes of scratch that sound_loss() needs, for any loss of sound. Builds the tables of the transforms.
std::size_t sound_loss_scratch(Index rows, Index steps);
/// Returns weight * loss summed over rows. Unless null, `gradient` [B, T] becomes that of sum / weight. Allocates
/// nothing. batch.width must be 1 and batch.positions rows * steps.
LossSum sound_loss(LossKind kind, int threads, Index rows, Index steps, const Regression& batch, float* gradient,
                   void* scratch);

}  // namespace penstock::ops
