"""Tests that growth, memory and start-up time stay bounded, without a clock where possible."""
