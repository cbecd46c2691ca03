"""The version, alone in a module so that the collector's plan and the build can read it cheaply."""

VERSION = "0.1.0"
