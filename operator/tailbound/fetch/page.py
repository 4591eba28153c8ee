"""Tells a page of a web site from a model: sites answer with one instead of an error, as to sign in."""

from typing import Final

HEAD_BYTES: Final = 512
_PAGE_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_BEGINNINGS: Final = (b"<!doctype html", b"<html", b"<head", b"<?xml version", b"<script")


def looks_like_a_page(head: bytes, content_type: str) -> bool:
    """Whether a file that is not the expected one is a page. head: its first bytes."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return text.startswith(_BEGINNINGS) or (content_type in _PAGE_TYPES and b"\x00" not in head)
