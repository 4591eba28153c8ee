"""What the scenarios share: the cluster under test, objects, waiting, traffic, the audit log."""
