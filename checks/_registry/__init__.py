"""The generated table of checks, their lazy import, and plug-ins."""
