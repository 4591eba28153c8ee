"""How many replicas hold the latency target: signals in, a decision with its reason out. Pure."""
