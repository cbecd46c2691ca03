"""How a collector is started somewhere and its document brought back."""
