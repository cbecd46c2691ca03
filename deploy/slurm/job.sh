#!/bin/sh
# The start of a batch script: the rest runs only after every node of the job has passed. slurmd runs a batch script as
# soon as its first node is ready, regardless of the prologs of the other nodes; srun waits for all of them.
#SBATCH --nodes=4
if [ -n "$SLURM_HET_SIZE" ]; then # a heterogeneous job: all its components
    preflight_on="--het-group=0-$((SLURM_HET_SIZE - 1))"
else
    preflight_on="--nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES"
fi
# shellcheck disable=SC2086
srun $preflight_on --ntasks-per-node=1 --overlap --mpi=none \
    /opt/preflight/bin/python3 -I -m preflight gate slurm-step --cluster /etc/slurm/preflight/cluster.toml || exit
