#pragma once

/// All headers of training and evaluation: the trainer, scores of forecasts and labels.
#include "penstock/classify/labels.h"
#include "penstock/forecast/score.h"
#include "penstock/train/fine_tune.h"
#include "penstock/train/fit.h"
#include "penstock/train/guard.h"
#include "penstock/train/kernel_profile.h"
#include "penstock/train/layer_profile.h"
#include "penstock/train/profile.h"
#include "penstock/train/score_rows.h"
#include "penstock/train/stopping.h"
#include "penstock/train/train.h"
