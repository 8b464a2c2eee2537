#pragma once

/// All headers of penstock/data: datasets from files and tables, and rows as models read them.
#include "penstock/data/arrow.h"
#include "penstock/data/dataset.h"
#include "penstock/data/labelled.h"
#include "penstock/data/labelled_texts.h"
#include "penstock/data/row_reader.h"
#include "penstock/data/row_steps.h"
#include "penstock/data/rows.h"
#include "penstock/data/series.h"
#include "penstock/data/sound.h"
#include "penstock/data/source.h"
#include "penstock/data/tasks.h"
#include "penstock/data/text.h"
