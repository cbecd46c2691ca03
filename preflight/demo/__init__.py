"""A made-up sick cluster as package data; see tests/support/machines."""
