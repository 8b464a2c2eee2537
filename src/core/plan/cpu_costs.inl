// The costs of work on a CPU, in the order of files: PENSTOCK_COST(name, value).

PENSTOCK_COST(multiply_adds, 25'000);  ///< Multiply-adds per microsecond of one thread
PENSTOCK_COST(gates, 400);             ///< Units and rows per microsecond to which one thread applies the cell
PENSTOCK_COST(int8_products, 1);       ///< Multiply-adds of int8 in the time of one of floats
PENSTOCK_COST(bytes, 10'000);          ///< Bytes of memory per microsecond of one thread
// Recurrences of dense cells, in multiply-adds that a thread could do in the same time, unless stated.
PENSTOCK_COST(weight, 1.1);      ///< Reading a recurrent weight for the rows of a tile
PENSTOCK_COST(far_weight, 1);    ///< Further cost per weight if the matrix does not fit the thread's own cache
PENSTOCK_COST(near_share, 0.9);  ///< Fraction of the L2 cache that a thread's part of a matrix may take to stay there
PENSTOCK_COST(sharing, 4'000);   ///< Waiting at the barrier of a step, per thread
PENSTOCK_COST(exchanged, 90);    ///< Each value of a state that another thread has computed and holds in its cache
PENSTOCK_COST(waiting, 0.06);    ///< Fraction of a step by which each further thread delays the last one

// Weights that are not packed in advance, in multiply-adds that a thread could do in the same time.
PENSTOCK_COST(packing, 18);      ///< Packing one weight
PENSTOCK_COST(lying_step, 1.6);  ///< Further cost per weight and step of reading unpacked weights instead of panels
PENSTOCK_COST(lying_row, 1.8);   ///< Further cost per weight and position of reading unpacked weights

PENSTOCK_COST(chunk_pass, 1.6);          ///< A scan in chunks, as a multiple of the time of a sequential one
PENSTOCK_COST(narrow_pass, 2.7);         ///< That multiple for fewer channels than a cache line holds
PENSTOCK_COST(product_grain, 65'536);    ///< Smallest number of multiply-adds worth a further thread
PENSTOCK_COST(library_product, 16'384);  ///< Smallest number of multiply-adds for which the library computes a product
PENSTOCK_COST(product_rows, 4);          ///< Up to this many rows it does not: reading the matrix dominates
PENSTOCK_COST(input_share, 0.25);        ///< Fraction of the L2 cache for the input products of the next steps
/// Largest ratio at which the input product of a step is computed together with the recurrent one, instead of for
/// many steps in advance. The ratio is the number of values of panels that are read again per value of a sum that
/// need not pass through memory. On a Xeon with AMX this made forward passes of LSTM cells 2 to 13 % faster at ratios
/// up to 1, equally fast at 3, and 14 to 41 % slower from 6 on.
PENSTOCK_COST(input_reads, 3);
PENSTOCK_COST(gradient_share, 1);  ///< Fraction of the L2 cache for inputs and gate gradients of a backward pass
/// Upper limit of these bytes: with a larger cache, larger pieces are not faster. With 2 MB of 2 MB, the gradient of
/// x took a seventh longer.
PENSTOCK_COST(gradient_bytes, 1 << 20);
PENSTOCK_COST(panel_share, 2);     ///< Panels of a step up to this multiple of the L2 cache are read as fast as from it
PENSTOCK_COST(streamed_share, 4);  ///< Tapes from this multiple of the L2 cache on bypass the caches

// Stacked layers as a wavefront.
PENSTOCK_COST(wave_matrix_share, 0.8);  ///< Threads share recurrent matrices larger than this fraction of the L2 cache
PENSTOCK_COST(wave_backward_share, 0.6);  ///< That fraction for a backward pass, which reads other data, too
PENSTOCK_COST(wave_rows, 16);             ///< With this many rows per thread, sharing the rows gains as much
PENSTOCK_COST(wave_chunks, 16);           ///< Chunks of a sequence: threads are idle during the first and the last ones
PENSTOCK_COST(wave_steps, 8);  ///< Smallest number of steps of a chunk: each chunk reads all input weights again
