"""The commands, one module each; what they take is imported when they are called."""
