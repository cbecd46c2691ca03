"""Tests that growth, memory and start-up stay bounded, without a clock where possible."""
