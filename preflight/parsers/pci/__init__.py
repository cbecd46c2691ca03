"""Output of lspci."""
