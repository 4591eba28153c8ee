"""The pure heart: what an InferenceService's world should become, given what it is.

Nothing here performs I/O or reads a clock, and nothing here imports kopf or a Kubernetes client.
"""
