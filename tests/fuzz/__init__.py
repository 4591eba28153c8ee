"""Fuzzers: mutated requests and generated objects against the real programs, repeatable from a seed."""
