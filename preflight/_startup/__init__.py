"""What makes a run start fast."""
