"""The canary verdict: counters in, evidence kept, a decision with its reason out. Pure."""
