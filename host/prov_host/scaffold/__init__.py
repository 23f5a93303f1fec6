"""Writes the package of a new plugin: ``prov-host new-plugin NAME DIR``.

What it writes is a whole backend whose tests pass as they are: an author changes what is special about a storage and
keeps the tests. The templates are ordinary files with ``$placeholders`` beside this module.
"""

from __future__ import annotations

import importlib.resources
import keyword
import re
import shutil
import string
from pathlib import Path

from prov_host.errors import ConfigurationError
from prov_host.plugins import ALL

__all__ = ["FILES", "names_for", "write_plugin"]

# Written file -> template; both may hold placeholders.
FILES = {
    "pyproject.toml": "pyproject.toml.tmpl",
    "README.md": "README.md.tmpl",
    ".gitignore": "gitignore.tmpl",
    "src/$package/__init__.py": "plugin.py.tmpl",
    "src/$package/settings.py": "settings.py.tmpl",
    "src/$package/py.typed": "",
    "tests/conftest.py": "conftest.py.tmpl",
    "tests/test_contract.py": "test_contract.py.tmpl",
    "tests/test_settings.py": "test_settings.py.tmpl",
    "tests/test_on_a_cluster.py": "test_on_a_cluster.py.tmpl",
}
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", re.ASCII)
_MAX_NAME = 40
# Taken by the built-in plugins, by the host's own table in the settings file, and by its own commands and packages.
_RESERVED = frozenset({"nfs_subdir", "hostpath", "prov_host", "host", "prov", "plugin", "plugins", "test", "tests"})


def names_for(name: str) -> dict[str, str]:
    """All the names that follow from a plugin's name.

    Args:
        name: for example ``"zfs-pool"`` or ``"zfs_pool"``.

    Returns:
        ``name`` (``zfs_pool``, for ``--plugin``), ``distribution`` (``prov-host-zfs-pool``), ``package``
        (``prov_host_zfs_pool``), ``class_name`` (``ZfsPool``), ``provisioner`` (``example.com/zfs-pool``) and
        ``variable`` (``PROV_HOST_ZFS_POOL``).

    Raises:
        ConfigurationError: the name cannot be used; says why and what would work.

    Callable from any thread. Since 0.1.
    """
    if not _NAME.fullmatch(name) or len(name) > _MAX_NAME:
        raise ConfigurationError(
            f"{name[:80]!r} cannot be a plugin's name: write 1 to {_MAX_NAME} lower-case letters, digits and single "
            "dashes or underscores, beginning with a letter, for example zfs-pool"
        )
    plugin = name.replace("-", "_")
    if keyword.iskeyword(plugin):
        raise ConfigurationError(
            f"{plugin!r} is a Python keyword, which cannot name a package or a plugin; choose another, for example "
            f"{plugin}-storage"
        )
    if plugin == ALL:
        raise ConfigurationError("--plugin all selects every installed plugin, so none can have the name 'all'")
    if plugin in _RESERVED:
        raise ConfigurationError(f"the name {plugin!r} is taken; choose one that says what your storage is")
    dashed = plugin.replace("_", "-")
    return {
        "name": plugin,
        "distribution": f"prov-host-{dashed}",
        "package": f"prov_host_{plugin}",
        "class_name": "".join(word.capitalize() for word in plugin.split("_")),
        "provisioner": f"example.com/{dashed}",
        "variable": f"PROV_HOST_{plugin.upper()}",
    }


def write_plugin(name: str, directory: Path) -> tuple[Path, ...]:
    """Write the package of a new plugin.

    Args:
        name: the plugin's name.
        directory: where to; must be new or empty, its parent must exist.

    Returns:
        The files written, in the order in which one reads them.

    Raises:
        ConfigurationError: the name or the directory cannot be used, or a file could not be written. Nothing is
            left behind then, and nothing that existed was changed.

    Callable from any thread. Since 0.1.
    """
    names = names_for(name)
    existed = directory.is_dir()
    try:
        if existed and any(directory.iterdir()):
            raise ConfigurationError(f"{directory} is not empty; name a directory that does not exist yet")
        directory.mkdir(exist_ok=existed)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {directory}: {error.strerror}") from error
    templates = importlib.resources.files(__name__) / "templates"
    written = []
    try:
        for target, template in FILES.items():
            path = directory / string.Template(target).substitute(names)
            text = (templates / template).read_text(encoding="utf-8") if template else ""
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(string.Template(text).substitute(names))
            written.append(path)
    except OSError as error:
        # The directory was empty or ours when we began, so all of it is what we wrote.
        for entry in directory.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if not existed:
            directory.rmdir()
        raise ConfigurationError(f"cannot write {error.filename or directory}: {error.strerror}") from error
    return tuple(written)
