"""The `tailbound.dev/v1alpha1` API and the contracts between Tailbound's own processes.

Everything here is data: no I/O (but for `crdgen`, which writes the CRDs), no client, no kopf.
"""
