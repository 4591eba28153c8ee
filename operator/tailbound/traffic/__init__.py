"""Derives what a traffic provider needs from status.traffic and EndpointSlices."""
