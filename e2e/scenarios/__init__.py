"""What users rely on, tried on a real cluster: one file per kind of behaviour."""
