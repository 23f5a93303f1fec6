"""The smallest backend that keeps every promise: a volume is a directory, named after the volume, on this node."""

import shutil
from pathlib import Path

import msgspec

from prov_host import Asset, Infeasible, Provisioned, Removed, hookimpl


class Settings(msgspec.Struct):
    root: str = "/var/lib/prov-host-minimal"


class MinimalPlugin:
    @hookimpl
    def settings_type(self):
        return Settings

    @hookimpl
    def configure(self, settings):
        self.root = Path(settings.root)

    @hookimpl
    def provisioners(self):
        return ["example.com/minimal"]

    @hookimpl
    def check(self):
        return [] if self.root.is_dir() else [f"{self.root} is not a directory; make it, or set `root`"]

    @hookimpl
    def provision(self, request):
        path = self._path(request.pv_name)
        path.mkdir(exist_ok=True)  # asked again, the same directory is the answer
        return Provisioned(source={"hostPath": {"path": str(path), "type": "Directory"}})

    @hookimpl
    def delete(self, volume):
        path = self._path(volume.name)  # from the name, never from what the volume says of itself
        absent = not path.is_dir()
        shutil.rmtree(path, ignore_errors=absent)
        return Removed(message=f"{path} is gone", already_absent=absent, path=str(path))

    @hookimpl
    def inventory(self):
        return [Asset(id=str(path), pv_name=path.name) for path in self.root.iterdir()]

    def _path(self, name):
        path = self.root / name
        if path.parent != self.root or name == ".." or self.check():
            raise Infeasible(f"{name!r} cannot be a directory in {self.root}")
        return path
