#pragma once

/// The whole public interface of Penstock.
#include "penstock/csp.h"
#include "penstock/cuda.h"
#include "penstock/data.h"
#include "penstock/error.h"
#include "penstock/model.h"
#include "penstock/model_file.h"
#include "penstock/plan.h"
#include "penstock/recurrent.h"
#include "penstock/scan.h"
#include "penstock/score.h"
#include "penstock/sound.h"
#include "penstock/stream.h"
#include "penstock/system.h"
#include "penstock/train.h"
#include "penstock/types.h"
#include "penstock/version.h"
