"""Tests of the benchmarks' own code; what they measure is no test."""
