"""The version, in a module of its own for the collector's plan and the build."""

VERSION = "0.1.0"
