"""From status.traffic and EndpointSlices to what a traffic provider needs."""
