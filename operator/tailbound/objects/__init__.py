"""Typed, read-only views of Kubernetes objects.

A view wraps the object as the API server sent it and copies nothing. It never raises: a field that is
missing, or that has another type than the API documents, reads as if it were absent, and an entry of a list
that is no object is passed over. What an absent field reads as is written at each accessor.
"""
