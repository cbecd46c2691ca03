"""One run of a command: set-up, collection, outputs."""
