"""Nodes through Slurm's own ``srun``."""
