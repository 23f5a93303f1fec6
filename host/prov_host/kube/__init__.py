"""The API side: knows the Kubernetes API, and nothing of provisioning.

From the wire up: :mod:`~prov_host.kube.session` (authentication, TLS, bytes) implements the seam of
:mod:`~prov_host.kube.transport`; :mod:`~prov_host.kube.client` makes typed operations, lists and watches of it;
:mod:`~prov_host.kube.reflector` keeps a :mod:`~prov_host.kube.store` equal to the server;
:mod:`~prov_host.kube.election` keeps a Lease; :mod:`~prov_host.kube.events` writes events. What the controller sees of
all that are the protocols of :mod:`~prov_host.kube.api`.
"""
