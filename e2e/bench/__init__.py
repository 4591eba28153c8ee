"""Measurements on a real cluster. Each prints one JSON line last."""
