"""The container that keeps SIGTERM back from a server that would cut the requests in flight."""
