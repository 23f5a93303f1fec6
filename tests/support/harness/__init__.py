"""Real parts for the tests and the benchmark: a control plane, an NFS server, the installed `prov-host`.

Nothing here knows pytest; tests/conftest.py makes fixtures of it and bench/ uses it as it is. Everything that is
started here listens on loopback, on ports that were free, and is stopped with its whole process group, also when the
test run is interrupted.

* `process`: one child process with a log file that ends with its parent.
* `binaries`: where etcd, kube-apiserver and kube-controller-manager come from.
* `controlplane`: the three of them, running.
* `client`: a small synchronous client of the Kubernetes API, for the real API server and the embedded one.
* `nfs`: nfs-ganesha, and files read and written through it.
* `host`: the installed `prov-host` as a process of its own.
"""


class MissingPart(Exception):
    """A part that is not on this machine; the message says how to get it, and tests are skipped with it."""
