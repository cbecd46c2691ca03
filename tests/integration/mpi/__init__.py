"""Real Open MPI over real sshd between network namespaces."""
