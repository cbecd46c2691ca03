"""A made-up sick cluster, as package data: evidence made by hand, see tests/support/machines."""
