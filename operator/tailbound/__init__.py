"""Tailbound: a Kubernetes operator that holds inference services to their tail latency."""
