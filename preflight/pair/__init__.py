"""Point-to-point tests: a server, a client, and the evidence of both."""
