"""Transport over SSH: paramiko, or the system's own client."""
