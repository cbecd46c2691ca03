"""Tests with hostile, damaged and random input; fuzzers."""
