#!/usr/bin/env bash
# Trains a model of a text on all GPUs of two nodes: sbatch slurm.sh TEXT... [options of penstock.torch.train].
# Started again by Slurm after a time limit, it goes on from its last checkpoint.
#SBATCH --job-name=penstock
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --signal=TERM@120
#SBATCH --requeue
set -euo pipefail

# Rank 0 runs on the first node of the job. The checkpoints lie on a file system that all nodes share.
MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
MASTER_PORT=${MASTER_PORT:-$((10000 + SLURM_JOB_ID % 50000))}
export MASTER_ADDR MASTER_PORT
output=${OUTPUT:-model.safetensors}
resume=()
compgen -G "$output.checkpoint/step-*/.metadata" > /dev/null && resume=(--resume)

# shellcheck disable=SC2016
srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec "$@"' rank \
  "${PYTHON:-python}" -m penstock.torch.train --device "${DEVICE:-cuda}" --output "$output" "${resume[@]}" "$@"
