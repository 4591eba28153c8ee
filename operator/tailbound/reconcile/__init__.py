"""The decision: what an InferenceService should become, given what exists. Pure.

Nothing here performs I/O or reads a clock, and nothing here imports kopf or a Kubernetes client.
"""
