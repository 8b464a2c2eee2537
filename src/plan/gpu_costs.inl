// The costs of work on a GPU, in the order of files: PENSTOCK_COST(name, value on an H200).

PENSTOCK_COST(launch, 3);          ///< Microseconds of a launch
PENSTOCK_COST(product_launch, 3);  ///< Microseconds of launching a product by a library or a separate kernel
PENSTOCK_COST(look_back, 5);       ///< Microseconds for which chunks of a scan wait for each other
PENSTOCK_COST(direct_steps, 64);  ///< Largest number of steps for which one thread is faster than blocks with look-back
PENSTOCK_COST(steps_ahead, 0.65);  ///< Regime::direct: microseconds for each batch of steps that a thread loads at once

PENSTOCK_COST(bytes, 3.3e6);          ///< Bytes of memory per microsecond, for scans and pointwise work
PENSTOCK_COST(direct_bytes, 0.85e6);  ///< Bytes of memory per microsecond, for Regime::direct
PENSTOCK_COST(tf32, 350e6);           ///< Multiply-adds per microsecond of a product in tf32
PENSTOCK_COST(halves, 700e6);         ///< Multiply-adds per microsecond of a product in bf16 or f16
PENSTOCK_COST(inputs, 0.005);         ///< Microseconds per input of a product, independent of its size

PENSTOCK_COST(clock, 1700);  ///< Cycles per microsecond

// Layers of scan cells in one launch, in cycles of a block.
PENSTOCK_COST(four_inputs, 150);  ///< Overhead of four inputs of a step
PENSTOCK_COST(chunk, 4000);       ///< Overhead of a chunk
PENSTOCK_COST(chunk_group, 60);   ///< Overhead per group of a chunk
PENSTOCK_COST(weight, 120);       ///< Loading one weight to shared memory, per thread
PENSTOCK_COST(input_copy, 60);    ///< Copying 16 bytes of x, per thread

// Layers of scan cells as the epilogue of a product by warpgroups.
PENSTOCK_COST(epilogue_launch, 7);       ///< Microseconds before the first and after the last tile
PENSTOCK_COST(epilogue_products, 1750);  ///< 16-bit multiplications per cycle of a multiprocessor
PENSTOCK_COST(epilogue_tile, 1500);      ///< Cycles of a tile besides its multiplications
PENSTOCK_COST(epilogue_step, 36);        ///< Cycles of an epilogue thread per step, channel and gate
PENSTOCK_COST(epilogue_share, 0.2);      ///< Fraction of these cycles that the next tile's multiplications wait for

PENSTOCK_COST(own_product,
              1e10);  ///< Multiplications from which a library's product of floats is faster than ours by warps

// Products of floats by warps, per cycle of a multiprocessor unless stated.
PENSTOCK_COST(products, 340 / 3.0);  ///< Multiplications of floats, each of three 16-bit ones
PENSTOCK_COST(instructions, 4);
PENSTOCK_COST(cached_bytes, 24);     ///< Bytes from the cache that all multiprocessors share
PENSTOCK_COST(product_block, 3000);  ///< Cycles of a block before its first and after its last multiplication
PENSTOCK_COST(product_pass, 5000);   ///< Cycles of the launch that adds up the splits of K
PENSTOCK_COST(added_bytes, 1500);    ///< Bytes per cycle that this launch adds up
PENSTOCK_COST(busy_warps, 8);        ///< Number of warps that saturate the tensor cores

// Products of floats by warpgroups.
PENSTOCK_COST(group_products, 0.65 * 1024 / 3);  ///< Multiplications per cycle: two thirds of the data sheet's
PENSTOCK_COST(group_block, 4000);                ///< Cycles of a block besides its work
PENSTOCK_COST(group_rows, 700);                  ///< Cycles of the rows of a tile besides their work
PENSTOCK_COST(group_alone, 600);                 ///< Cycles of a warpgroup between its products
PENSTOCK_COST(group_transposed, 350);            ///< Further cycles if A is transposed
PENSTOCK_COST(group_split, 7);                   ///< Cycles of splitting a column of a step
PENSTOCK_COST(group_bytes, 2200);                ///< Bytes of memory per cycle

// Recurrences of dense cells over clusters, in nanoseconds per step.
PENSTOCK_COST(exchange_of_8, 300);    ///< An all-gather in a cluster, without its bytes
PENSTOCK_COST(exchange_of_16, 350);   ///< The same of 16 blocks
PENSTOCK_COST(received_bytes, 50);    ///< Bytes per nanosecond that one block receives
PENSTOCK_COST(tensor_tile, 4);        ///< Two tiles of 16 x 8 on one tensor core
PENSTOCK_COST(shared_bytes, 250);     ///< Bytes per nanosecond from a multiprocessor's shared memory
PENSTOCK_COST(cluster_warp, 15);      ///< Further work of each warp of a tensor core
PENSTOCK_COST(uneven_rows, 45);       ///< Bank conflicts if rows are not a multiple of four
PENSTOCK_COST(cluster_overlap, 0.8);  ///< Time of a step as a fraction of the sum of its parts
PENSTOCK_COST(cluster_slot, 200);     ///< The cell, per unit and row of each thread

// Recurrences of dense cells over the whole chip, in nanoseconds per step. Costs shared with clusters are above.
PENSTOCK_COST(chip_exchange, 920);  ///< From a store in one multiprocessor to its visibility in another, with barriers
PENSTOCK_COST(chip_poll, 400);      ///< A thread waits for more values than it can poll at once
PENSTOCK_COST(gathered_bytes, 60);  ///< Bytes per nanosecond that one block gathers
PENSTOCK_COST(chip_sums, 500);      ///< Exchange of sums among the blocks of a cluster
PENSTOCK_COST(pair_sums, 420);      ///< Exchange of sums in clusters of two
PENSTOCK_COST(block_sums, 60);      ///< Exchange of sums within one block
PENSTOCK_COST(chip_backward, 250);  ///< Further time of a step of a backward pass
// Costs with exchange from registers to registers. The fit to measured times has a mean error below 6 %.
PENSTOCK_COST(direct_exchange, 1116);     ///< A step without multiplications
PENSTOCK_COST(direct_backward, 640);      ///< Further time of a step of a backward pass
PENSTOCK_COST(direct_request, 97);        ///< Each time that a thread must poll again for values beyond one request
PENSTOCK_COST(direct_tile, 2.9);          ///< Two tiles of 16 x 8 on one tensor core
PENSTOCK_COST(direct_shared_bytes, 530);  ///< Bytes per nanosecond of the recurrent matrix from shared memory
PENSTOCK_COST(direct_sums_bytes, 100);    ///< Bytes per nanosecond of sums among the warps of a block
PENSTOCK_COST(direct_pair_bytes, 35);     ///< Bytes per nanosecond of sums among the warps of two blocks
PENSTOCK_COST(direct_slot, 475);          ///< The cell, per unit and row of a thread after the first

// Recurrences of dense cells with a product and a launch per step.
PENSTOCK_COST(step_launch, 5000);   ///< Nanoseconds from the start of a small kernel to that of the next
PENSTOCK_COST(step_halves, 400e6);  ///< 16-bit multiplications per microsecond of a product of few rows
PENSTOCK_COST(step_floats, 60e6);   ///< Multiplications of floats per microsecond of such a product
PENSTOCK_COST(step_warps, 4);       ///< Warps of a block that applies the cell
PENSTOCK_COST(l2_bytes, 4500);      ///< Bytes per nanosecond from the L2 cache to all multiprocessors
PENSTOCK_COST(resident_share,
              0.75);  ///< Largest fraction of the L2 cache that a matrix may take to stay there over steps

// Recurrences of dense cells in one block, in nanoseconds per step unless stated.
PENSTOCK_COST(head_step, 130);        ///< Barrier, and the dependent chain from loading h to storing it
PENSTOCK_COST(head_gate, 4);          ///< Each gate
PENSTOCK_COST(head_state, 15);        ///< Each state except the output
PENSTOCK_COST(head_rows, 30);         ///< Each pair of rows of a block after the first
PENSTOCK_COST(head_product, 4);       ///< One multiplication of 16 x 8 x 16 on one of four tensor cores
PENSTOCK_COST(head_floats, 10);       ///< A multiplication of floats, as a multiple of a 16-bit one
PENSTOCK_COST(head_training, 1.13);   ///< A step with a tape, as a multiple of one without
PENSTOCK_COST(head_backward, 1.3);    ///< A step of the backward pass, as a multiple of a forward step
PENSTOCK_COST(head_neighbour, 0.45);  ///< Each further block on a multiprocessor, as a fraction of one block

// Recurrences of dense cells with diagonal matrices, in nanoseconds per step of a thread unless stated.
PENSTOCK_COST(diagonal_step, 95);        ///< Minimum of a step
PENSTOCK_COST(diagonal_gate, 20);        ///< Each gate
PENSTOCK_COST(diagonal_backward, 1.55);  ///< A step of the backward pass, as a multiple of a forward step
PENSTOCK_COST(diagonal_slope, 0.15);     ///< Computing derivatives: each state, as a fraction of a step without them
PENSTOCK_COST(diagonal_join, 1000);      ///< From one batch of pieces, which are read at once, to the next

// Stacked layers as a wavefront, in microseconds.
PENSTOCK_COST(branch_chunk, 16);   ///< A chunk besides its steps: launch, loading the recurrent matrix, the next branch
PENSTOCK_COST(branch_launch, 13);  ///< Time of the host per chunk of a layer

// Host and GPU, in microseconds unless stated. The first two are assumed, not measured.
PENSTOCK_COST(recorded_launch, 1.2);  ///< A launch inside a recorded graph
PENSTOCK_COST(host_copy, 12);         ///< A synchronous copy from or to the host, without its bytes
PENSTOCK_COST(host_bytes, 10.5e3);    ///< Bytes per microsecond of such a copy
PENSTOCK_COST(start, 600e3);          ///< Start of a process: driver, memory, kernels from the cache
