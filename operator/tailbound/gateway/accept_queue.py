"""The connections that the kernel has made for Envoy and that Envoy has not accepted yet.

No counter of Envoy shows them, and the kernel resets them when Envoy ends.
"""

from tailbound.objects.unknown import Unknown
from tailbound.sock_diag import TcpState, tcp_sockets


def waiting_connections(port: int) -> int | Unknown:
    """Length of the accept queues of all sockets that listen on a TCP port. Envoy has one for each worker."""
    try:
        return sum(each.unread for each in tcp_sockets(TcpState.LISTEN) if each.port == port)
    except OSError as error:
        return Unknown(f"the kernel does not list its sockets: {error}")
