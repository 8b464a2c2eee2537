// The costs of work on a GPU, in the order of files, in a group for each way to run something:
//   PENSTOCK_COSTS(type, name), then PENSTOCK_COST(name, name in files, value on an H200), then
//   PENSTOCK_END_COSTS(name)

// Work of any kind, in microseconds unless stated.
PENSTOCK_COSTS(Common, common);
PENSTOCK_COST(launch, "launch", 3);                  ///< A launch of a kernel
PENSTOCK_COST(product_launch, "product_launch", 3);  ///< Launching a product by a library or a separate kernel
PENSTOCK_COST(unaligned, "product_unaligned", 3);    ///< Further such time of inputs that are not aligned to 16 bytes
PENSTOCK_COST(bytes, "bytes", 3.3e6);                ///< Bytes of memory per microsecond, for scans and pointwise work
PENSTOCK_COST(tf32, "tf32", 350e6);                  ///< Multiply-adds per microsecond of a product in tf32
PENSTOCK_COST(halves, "halves", 700e6);              ///< Multiply-adds per microsecond of a product in bf16 or f16
PENSTOCK_COST(inputs, "inputs", 0.005);              ///< Each input of a product, independent of its size
PENSTOCK_COST(clock, "clock", 1700);                 ///< Cycles per microsecond
PENSTOCK_COST(l2_bytes, "l2_bytes", 4500);           ///< Bytes per nanosecond from the L2 cache to all multiprocessors
PENSTOCK_END_COSTS(common);

// Scans of explicit coefficients and of layers, in microseconds unless stated. Fitted to 152 times on an H200, of 1 to
// 256 rows, 4 to 2,048 steps and 64 to 2,048 channels, with a mean error of 10 %.
PENSTOCK_COSTS(Scan, scan);
PENSTOCK_COST(look_back, "look_back", 6.5);           ///< Waiting of the chunks of a scan for each other
PENSTOCK_COST(bytes, "scan_bytes", 3.5e6);            ///< ScanAlgorithm::scan: bytes of memory per microsecond
PENSTOCK_COST(tile, "scan_tile", 2);                  ///< ScanAlgorithm::scan: a tile of a block, after the first
PENSTOCK_COST(gate, "scan_gate", 6.8e-5);             ///< Further time of such a tile for each gate of a value
PENSTOCK_COST(back_gate, "scan_back_gate", 16.5e-5);  ///< The same in a backward pass
PENSTOCK_COST(back_halves, "scan_back_halves", 12);   ///< Further time of a backward pass of 16-bit values in a layer
PENSTOCK_COST(steps_ahead, "steps_ahead", 0.85);      ///< ScanAlgorithm::direct: a batch of loads
PENSTOCK_COST(back_steps_ahead, "back_steps_ahead", 1.35);  ///< The same in a backward pass
PENSTOCK_COST(direct_bytes, "direct_bytes", 3.45e6);        ///< ScanAlgorithm::direct: bytes of memory per microsecond
PENSTOCK_END_COSTS(scan);

// Layers of scan cells in one launch, in cycles of a block.
PENSTOCK_COSTS(Fused, fused);
PENSTOCK_COST(launch, "fused_launch", 1);        ///< Microseconds of the first and the last block besides its work
PENSTOCK_COST(four_inputs, "four_inputs", 150);  ///< Overhead of four inputs of a step
PENSTOCK_COST(chunk, "chunk", 4000);             ///< Overhead of a chunk
PENSTOCK_COST(chunk_group, "chunk_group", 60);   ///< Overhead per group of a chunk
PENSTOCK_COST(weight, "weight", 120);            ///< Loading one weight to shared memory, per thread
PENSTOCK_COST(input_copy, "input_copy", 60);     ///< Copying 16 bytes of x, per thread
PENSTOCK_END_COSTS(fused);

// Layers of scan cells as the epilogue of a product by warpgroups.
PENSTOCK_COSTS(Epilogue, epilogue);
PENSTOCK_COST(launch, "epilogue_launch", 2);         ///< Microseconds before the first and after the last tile
PENSTOCK_COST(products, "epilogue_products", 1750);  ///< 16-bit multiplications per cycle of a multiprocessor
PENSTOCK_COST(tile, "epilogue_tile", 1500);          ///< Cycles of a tile besides its multiplications
PENSTOCK_COST(step, "epilogue_step", 36);            ///< Cycles of an epilogue thread per step, channel and gate
PENSTOCK_COST(share, "epilogue_share", 0.2);         ///< Fraction of these cycles for which the next tile waits
PENSTOCK_END_COSTS(epilogue);

// Fp32 GEMMs by warps, per cycle of a multiprocessor unless stated.
PENSTOCK_COSTS(Product, product);
PENSTOCK_COST(own, "own_product", 1e10);          ///< Multiplications from which a library is faster than our warps
PENSTOCK_COST(products, "products", 340 / 3.0);   ///< Multiplications of floats, each of three 16-bit ones
PENSTOCK_COST(instructions, "instructions", 4);   ///< Instructions of all warps
PENSTOCK_COST(cached_bytes, "cached_bytes", 24);  ///< Bytes from the cache that all multiprocessors share
PENSTOCK_COST(block, "product_block", 10e3);      ///< Cycles of a block before and after its multiplications
PENSTOCK_COST(pass, "product_pass", 5000);        ///< Cycles of the launch that adds up the splits of K
PENSTOCK_COST(added_bytes, "added_bytes", 1500);  ///< Bytes per cycle that this launch adds up
PENSTOCK_COST(busy_warps, "busy_warps", 8);       ///< Number of warps that saturate the tensor cores
PENSTOCK_END_COSTS(product);

// Fp32 GEMMs by warpgroups.
PENSTOCK_COSTS(Warpgroups, warpgroups);
PENSTOCK_COST(products, "group_products", 0.65 * 1024 / 3);  ///< Multiplications per cycle: 65 % of the data sheet's
PENSTOCK_COST(block, "group_block", 4000);                   ///< Cycles of a block besides its work
PENSTOCK_COST(rows, "group_rows", 700);                      ///< Cycles of the rows of a tile besides their work
PENSTOCK_COST(alone, "group_alone", 600);                    ///< Cycles of a warpgroup between its products
PENSTOCK_COST(transposed, "group_transposed", 350);          ///< Further cycles if A is transposed
PENSTOCK_COST(split, "group_split", 7);                      ///< Cycles of splitting a column of a step
PENSTOCK_COST(bytes, "group_bytes", 2200);                   ///< Bytes of memory per cycle
PENSTOCK_END_COSTS(warpgroups);

// Fp32 GEMMs of pairs of float16 by warpgroups. Fitted to 45 times on an H200, of tiles of 64 columns or more, with a
// mean error of 3 %. Rows whose addresses are not aligned take up to 18 % longer.
PENSTOCK_COSTS(Pairs, pairs);
PENSTOCK_COST(products, "pair_products", 440);         ///< Multiplications per cycle: 64 % of the data sheet's
PENSTOCK_COST(alone, "pair_alone", 1000);              ///< Cycles of a warpgroup between the products of 64 of K
PENSTOCK_COST(tile, "pair_tile", 3200);                ///< Cycles of a tile besides its products
PENSTOCK_COST(cached_bytes, "pair_cached_bytes", 40);  ///< Bytes from the L2 cache per cycle of a multiprocessor
PENSTOCK_COST(bytes, "pair_bytes", 2500);              ///< Bytes of memory per cycle while pairs are made
PENSTOCK_COST(launches, "pair_launches", 43e3);        ///< Cycles of the launches before and after the product
PENSTOCK_END_COSTS(pairs);

// Recurrences of dense cells over several blocks: costs that clusters and the whole chip share, in nanoseconds per
// step.
PENSTOCK_COSTS(Team, team);
PENSTOCK_COST(received_bytes, "received_bytes", 50);  ///< Bytes per nanosecond that one block receives
PENSTOCK_COST(tensor_tile, "tensor_tile", 4);         ///< Two tiles of 16 x 8 on one tensor core
PENSTOCK_COST(shared_bytes, "shared_bytes", 250);     ///< Bytes per nanosecond from a multiprocessor's shared memory
PENSTOCK_COST(warp, "cluster_warp", 15);              ///< Further work of each warp of a tensor core
PENSTOCK_COST(slot, "cluster_slot", 200);             ///< The cell, per unit and row of each thread
PENSTOCK_END_COSTS(team);

// Recurrences of dense cells over clusters, in nanoseconds per step.
PENSTOCK_COSTS(Cluster, cluster);
PENSTOCK_COST(exchange_of_8, "exchange_of_8", 300);    ///< An all-gather in a cluster, without its bytes
PENSTOCK_COST(exchange_of_16, "exchange_of_16", 350);  ///< An all-gather among 16 blocks
PENSTOCK_COST(uneven_rows, "uneven_rows", 45);         ///< Bank conflicts if rows are not a multiple of four
PENSTOCK_COST(back_slot, "cluster_back_slot", 200);    ///< Further time of the cell in a backward pass, as cluster_slot
PENSTOCK_COST(halves, "cluster_halves", 0.9);          ///< A forward step of 16-bit values, as a multiple of its parts
PENSTOCK_COST(floats, "cluster_floats", 1.18);         ///< A forward step of floats
PENSTOCK_COST(tf32, "cluster_tf32", 1.05);             ///< A forward step in TF32, of one product instead of three
PENSTOCK_COST(backward, "cluster_backward", 0.84);     ///< A backward step
PENSTOCK_COST(back_tiles, "cluster_back_tiles", 1.27);  ///< One of more than eight rows, as a multiple of that
PENSTOCK_COST(means, "cluster_means", 600);             ///< An exchange of means over a head, without its bytes
PENSTOCK_COST(back_means, "cluster_back_means", 300);   ///< Further time of one in a backward pass
PENSTOCK_COST(start, "cluster_start", 9.5e3);           ///< Time before the first step
PENSTOCK_COST(matrix, "cluster_matrix", 44);            ///< Further such time for each KB of R that a block has
PENSTOCK_END_COSTS(cluster);

// Recurrences of dense cells over the whole chip, in nanoseconds per step.
PENSTOCK_COSTS(Chip, chip);
PENSTOCK_COST(exchange, "chip_exchange", 920);        ///< From a store to its visibility elsewhere, with barriers
PENSTOCK_COST(poll, "chip_poll", 400);                ///< A thread waits for more values than it can poll at once
PENSTOCK_COST(gathered_bytes, "gathered_bytes", 60);  ///< Bytes per nanosecond that one block gathers
PENSTOCK_COST(sums, "chip_sums", 500);                ///< Exchange of sums among the blocks of a cluster
PENSTOCK_COST(pair_sums, "pair_sums", 420);           ///< Exchange of sums in clusters of two
PENSTOCK_COST(block_sums, "block_sums", 60);          ///< Exchange of sums within one block
PENSTOCK_COST(backward, "chip_backward", 250);        ///< Further time of a step of a backward pass
PENSTOCK_COST(means, "chip_means", 2100);             ///< An exchange of means over a head, without its bytes
PENSTOCK_COST(back_means, "chip_back_means", 1100);   ///< Further time of one in a backward pass
PENSTOCK_COST(step, "chip_step", 1.27);               ///< A step, as a multiple of the sum of its parts
PENSTOCK_COST(start, "chip_start", 17e3);             ///< Time before the first step
PENSTOCK_END_COSTS(chip);

// Recurrences of dense cells over the whole chip with exchange from registers to registers, in nanoseconds per step.
// The fit to measured times has a mean error below 6 %.
PENSTOCK_COSTS(Direct, direct);
PENSTOCK_COST(exchange, "direct_exchange", 866);          ///< A forward step without clusters and multiplications
PENSTOCK_COST(clusters, "direct_clusters", 250);          ///< Further time of a step with clusters, or backward
PENSTOCK_COST(backward, "direct_backward", 220);          ///< Further time of a step of a backward pass
PENSTOCK_COST(request, "direct_request", 97);             ///< A thread polls again for values beyond one request
PENSTOCK_COST(tile, "direct_tile", 2.9);                  ///< Two tiles of 16 x 8 on one tensor core
PENSTOCK_COST(shared_bytes, "direct_shared_bytes", 530);  ///< Bytes per nanosecond of R from shared memory
PENSTOCK_COST(sums_bytes, "direct_sums_bytes", 100);      ///< Bytes per nanosecond of sums among the warps of a block
PENSTOCK_COST(pair_bytes, "direct_pair_bytes", 35);  ///< Bytes per nanosecond of sums among the warps of two blocks
PENSTOCK_COST(slot, "direct_slot", 475);             ///< The cell, per unit and row of a thread after the first
PENSTOCK_COST(floats, "direct_floats", 300);         ///< Forward, further time of floats, per unit and row of a thread
PENSTOCK_COST(step, "direct_step", 1.03);            ///< A step, as a multiple of the sum of its parts
PENSTOCK_END_COSTS(direct);

// Recurrences of dense cells with a product and a launch per step.
PENSTOCK_COSTS(Step, step);
PENSTOCK_COST(launch, "step_launch", 5000);       ///< Nanoseconds from the start of a small kernel to that of the next
PENSTOCK_COST(halves, "step_halves", 400e6);      ///< 16-bit multiplications per microsecond of a product of few rows
PENSTOCK_COST(floats, "step_floats", 60e6);       ///< Multiplications of floats per microsecond of such a product
PENSTOCK_COST(depth, "step_depth", 12.5);         ///< Nanoseconds of each unit of a head in an fp32 GEMM
PENSTOCK_COST(unaligned, "step_unaligned", 700);  ///< Bytes per nanosecond of a matrix not aligned to 16 bytes
PENSTOCK_COST(warps, "step_warps", 4);            ///< Warps of a block that applies the cell
PENSTOCK_COST(resident_share, "resident_share", 0.75);  ///< Largest share of the L2 cache for a matrix to stay there
PENSTOCK_END_COSTS(step);

// Recurrences of dense cells in one block, in nanoseconds per step unless stated.
PENSTOCK_COSTS(Head, head);
PENSTOCK_COST(step, "head_step", 96);       ///< Barrier, and the dependent chain from loading h to storing it
PENSTOCK_COST(gate, "head_gate", 4);        ///< Each gate
PENSTOCK_COST(state, "head_state", 15);     ///< Each state except the output
PENSTOCK_COST(rows, "head_rows", 30);       ///< Each pair of rows of a block after the first
PENSTOCK_COST(product, "head_product", 5);  ///< One multiplication of 16 x 8 x 16 on one of four tensor cores
PENSTOCK_COST(floats, "head_floats", 5.3);  ///< A multiplication of floats, as a multiple of a 16-bit one
PENSTOCK_COST(tf32, "head_tf32", 3);        ///< The same in TF32
PENSTOCK_COST(shared_bytes, "head_shared_bytes", 300);  ///< Bytes read per nanosecond of the matrix in shared memory
PENSTOCK_COST(means, "head_means", 310);                ///< Means over a head that depend on no other means of the step
PENSTOCK_COST(training, "head_training", 1.13);         ///< A step with a tape, as a multiple of one without
PENSTOCK_COST(backward, "head_backward", 1.4);     ///< A step of the backward pass, as a multiple of a forward step
PENSTOCK_COST(neighbour, "head_neighbour", 0.45);  ///< A further block on a multiprocessor, as a fraction of one
PENSTOCK_COST(start, "head_start", 7.5e3);         ///< Time before the first step
PENSTOCK_END_COSTS(head);

// Recurrences of dense cells with diagonal matrices, in nanoseconds per step of a thread unless stated.
PENSTOCK_COSTS(Diagonal, diagonal);
PENSTOCK_COST(step, "diagonal_step", 95);            ///< Minimum of a step
PENSTOCK_COST(gate, "diagonal_gate", 20);            ///< Each gate
PENSTOCK_COST(backward, "diagonal_backward", 1.55);  ///< A step of the backward pass, as a multiple of a forward step
PENSTOCK_COST(slope, "diagonal_slope", 0.15);        ///< Derivatives by a state, as a fraction of a step without them
PENSTOCK_COST(join, "diagonal_join", 1000);          ///< From one batch of pieces, which are read at once, to the next
PENSTOCK_END_COSTS(diagonal);

// Stacked layers as a wavefront, in microseconds.
PENSTOCK_COSTS(Wavefront, wavefront);
PENSTOCK_COST(chunk, "branch_chunk", 16);    ///< A chunk besides its steps: launch, loading R, the next branch
PENSTOCK_COST(launch, "branch_launch", 13);  ///< Time of the host per chunk of a layer
PENSTOCK_END_COSTS(wavefront);

// Host and GPU, in microseconds unless stated. The first two are assumed, not measured.
PENSTOCK_COSTS(Host, host);
PENSTOCK_COST(recorded_launch, "recorded_launch", 1.2);  ///< A launch inside a recorded graph
PENSTOCK_COST(copy, "host_copy", 12);                    ///< A synchronous copy from or to the host, without its bytes
PENSTOCK_COST(bytes, "host_bytes", 10.5e3);              ///< Bytes per microsecond of such a copy
PENSTOCK_COST(start, "start", 600e3);                    ///< Start of a process: driver, memory, kernels from the cache
PENSTOCK_END_COSTS(host);
