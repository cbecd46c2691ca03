#!/bin/sh
# The top of a batch script: nothing below starts before each node of the job has passed. slurmd runs a batch script as
# soon as its first node is ready, whatever the prologs of the others find; srun waits for all of them.
#SBATCH --nodes=4
if [ -n "$SLURM_HET_SIZE" ]; then # a heterogeneous job: all its parts
    preflight_on="--het-group=0-$((SLURM_HET_SIZE - 1))"
else
    preflight_on="--nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES"
fi
# shellcheck disable=SC2086
srun $preflight_on --ntasks-per-node=1 --overlap --mpi=none \
    /opt/preflight/bin/python3 -I -m preflight gate slurm-step --cluster /etc/slurm/preflight/cluster.toml || exit
