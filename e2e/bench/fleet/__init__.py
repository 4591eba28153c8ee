"""What a fleet costs the control plane."""
