"""The verdict on a candidate: counters in, evidence kept, a decision with its reason out. Pure."""
