"""Output of training programs."""
