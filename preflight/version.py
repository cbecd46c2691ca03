"""The version, in a separate module for the collector's plan and the build."""

VERSION = "0.1.0"
