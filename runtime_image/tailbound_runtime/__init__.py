"""Tailbound's model server: Open Inference Protocol v2 over HTTP/1.1, on ONNX Runtime."""

import os

__version__ = "0.1.0"

# ONNX Runtime (1.29 and later) sends usage data unless it is disabled, and writes a device id below $HOME. It
# reads this once, when it is imported: here it is set before any module of this package can import it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
