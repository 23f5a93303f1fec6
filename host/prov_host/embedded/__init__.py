"""An in-memory Kubernetes API server with the volume part of a control plane: the demo's cluster and the tests'.

::

    cluster = Cluster()
    async with serve(cluster) as server:
        write_kubeconfig("kubeconfig", server.url)  # kubectl --kubeconfig kubeconfig get pvc
        ...

    transport = InProcessTransport(Cluster(clock=fake_clock))  # no sockets, no real time
"""

from prov_host.embedded.cluster import Cluster
from prov_host.embedded.http import EMBEDDED_NAME, Server, serve, write_kubeconfig
from prov_host.embedded.inprocess import InProcessTransport

__all__ = ["EMBEDDED_NAME", "Cluster", "InProcessTransport", "Server", "serve", "write_kubeconfig"]
