"""The fetch init container: a verified download of the model, before the server starts."""
