"""Nodes over SSH: with paramiko, or through the system's own client."""
