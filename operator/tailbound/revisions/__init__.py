"""Identity, rendering and history of revisions: what was judged is what serves."""
