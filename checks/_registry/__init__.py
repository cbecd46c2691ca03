"""The generated table of checks, their import when they run, and plug-ins."""
