"""Transport over Slurm's ``srun``."""
