#!/bin/sh
# The top of a batch script: nothing below starts before each node of the job has passed. slurmd runs a batch script as
# soon as its first node is ready, whatever the prologs of the others find; srun waits for all of them.
#SBATCH --nodes=4
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --overlap --mpi=none \
    /opt/preflight/bin/preflight gate slurm-step --cluster /etc/slurm/preflight/cluster.toml || exit
