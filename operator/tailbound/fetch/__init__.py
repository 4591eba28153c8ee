"""`tailbound fetch`: bring one model into a serving pod, verified, before the server starts.

This is the init container of every serving pod. HTTP uses the standard library's client, which takes a socket
that is already connected: so the address that was checked is the address that is talked to. Libraries that
connect by themselves go through a proxy of ours (`gate`), with the same effect. Proxy variables (http_proxy
and the like) are not honoured: the chart or the service names the proxy.
"""
