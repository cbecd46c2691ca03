"""Tests against real components: sshd, Slurm, pods, fabrics, containers, browsers."""
