"""Output of Kubernetes and Slurm."""
