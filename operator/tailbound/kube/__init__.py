"""The Kubernetes API as a small protocol of dicts, with kubernetes.aio as its transport."""
