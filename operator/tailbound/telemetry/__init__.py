"""Tailbound's own metrics, logs and Events."""
