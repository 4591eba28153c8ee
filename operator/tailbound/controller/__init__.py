"""Kopf wiring, stores, the key queue and leader election: the only package that imports kopf."""
