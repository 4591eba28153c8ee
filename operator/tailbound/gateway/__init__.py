"""The gateway's sidecar: delta ADS for Envoy, and /observed for the operator."""
