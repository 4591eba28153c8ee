"""Rollouts: who is stable and who is the candidate, traffic, replicas and what is said of them. Pure."""
