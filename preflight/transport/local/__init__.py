"""The collector on this machine, in a separate process."""
