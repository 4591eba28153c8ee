"""The pure heart: what an InferenceService should become, given what exists.

Nothing here performs I/O or reads a clock, and nothing here imports kopf or a Kubernetes client.
"""
