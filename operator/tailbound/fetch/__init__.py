"""`tailbound fetch`: bring one model file into a serving pod, verified, before the server starts.

This is the init container of every serving pod, so it starts fast and needs little: the standard library's
HTTP client. That one also takes a socket that is already connected, which is how the address that was checked
is the address that is talked to. Proxy variables (http_proxy and the like) are not honoured: a proxy resolves
names itself, and no check here would mean anything.
"""
