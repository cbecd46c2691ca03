"""Parsers of the output of Kubernetes and Slurm."""
