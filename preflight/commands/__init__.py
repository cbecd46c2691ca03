"""The commands, one module each; their imports run when they are called."""
