"""A collector on this very machine, in a process of its own."""
