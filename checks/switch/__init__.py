"""Checks of Ethernet switches, and of the cables between them and the hosts."""
