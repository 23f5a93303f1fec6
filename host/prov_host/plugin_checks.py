"""Checks what can be seen by looking at a plugin, before any of its hooks is called.

pluggy finds hooks by their marks and refuses arguments that a hook does not have. Here is the rest: names that are no
hooks, with what may have been meant; hooks that were forgotten to be marked; half a backend; async functions; a
generator that is no wrapper; another version of the API.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pluggy

from prov_host.errors import PluginError
from prov_host.hookspecs import API_VERSION, PROJECT, HookSpecs

__all__ = ["checked_instance", "hooks_of", "name_problem", "new_manager", "signature_problem"]

logger = logging.getLogger(__name__)

_BACKEND_HOOKS = ("provisioners", "provision", "delete")
_MAY_YIELD = ("inventory", "check", "provisioners")
_HOOKS = tuple(name for name in vars(HookSpecs) if not name.startswith("_"))
# What the API lets a StorageClass name as its provisioner: a qualified name, whose prefix may have capitals.
_NAME_PART = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_NAME_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_PREFIX = 253
_OLDEST_API = max(1, API_VERSION - 1)


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the hook specifications. Callable from any thread. Since 0.1."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    return manager


def checked_instance(load: Callable[[], Any], title: str, value: str) -> object:
    """Import a plugin, instantiate it if it is a class, and check what can be seen by looking at it.

    Args:
        load: imports the entry point's target and returns it.
        title: what messages call the plugin.
        value: the entry point's target.

    Returns:
        The module or object with the hooks.

    Raises:
        PluginError: it is no plugin, or breaks a promise that can be seen.
        BaseException: what importing or instantiating it raised.

    Callable from any thread. Since 0.1.
    """
    target = load()
    instance = target() if inspect.isclass(target) else target
    _check_api(instance)
    manager = new_manager()
    try:
        manager.register(instance, title)
    except pluggy.PluginValidationError as error:
        raise PluginError(signature_problem(error)) from error
    hooks, wrappers = hooks_of(manager, instance)
    unmarked = [name for name in _HOOKS if callable(_static(instance, name)) and name not in {*hooks, *wrappers}]
    if not hooks and not wrappers:
        hint = f"; mark {', '.join(unmarked)} with @prov_host.hookimpl" if unmarked else ""
        raise PluginError(f"{value} implements no hook{hint}")
    _check_functions(manager, instance)
    if set(hooks) & {"provision", "delete", "provisioners", "archive"}:
        missing = [name for name in _BACKEND_HOOKS if name not in hooks]
        if missing:
            marked = [
                f"{name} is there but not marked with @prov_host.hookimpl" for name in missing if name in unmarked
            ]
            hint = f" ({'; '.join(marked)})" if marked else ""
            raise PluginError(
                f"a backend implements {', '.join(_BACKEND_HOOKS)}; this one lacks {', '.join(missing)}{hint}"
            )
    if unmarked:
        logger.warning(
            "%s: %s named like a hook but not marked with @prov_host.hookimpl, and will not be called",
            title,
            ", ".join(unmarked) + (" is" if len(unmarked) == 1 else " are"),
        )
    return instance


def _static(instance: object, name: str) -> object:
    """An attribute without running descriptors of a plugin's class."""
    found = inspect.getattr_static(instance, name, None)
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _check_api(instance: object) -> None:
    version = getattr(instance, "PROV_HOST_API", None)
    if version is None and not isinstance(instance, ModuleType):
        version = getattr(sys.modules.get(type(instance).__module__), "PROV_HOST_API", None)
    if version is None:
        return
    if not isinstance(version, int) or isinstance(version, bool):
        raise PluginError(f"PROV_HOST_API is {version!r}; it must be a number, {API_VERSION} for this prov-host")
    offered = str(API_VERSION) if _OLDEST_API == API_VERSION else f"{_OLDEST_API} and {API_VERSION}"
    if version > API_VERSION:
        raise PluginError(f"it is written for API {version}, this prov-host offers {offered}: upgrade prov-host")
    if version < _OLDEST_API:
        raise PluginError(f"it is written for API {version}, this prov-host offers {offered}: upgrade the plugin")


def hooks_of(manager: pluggy.PluginManager, instance: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The hooks a registered plugin implements, and those it wraps, both sorted.

    Raises:
        PluginError: it marks something that is no hook.

    Callable from any thread. Since 0.1.
    """
    hooks: set[str] = set()
    wrappers: set[str] = set()
    for caller in manager.get_hookcallers(instance) or ():
        for implementation in caller.get_hookimpls():
            wraps = implementation.wrapper or implementation.hookwrapper
            (wrappers if wraps else hooks).add(caller.name)
            if caller.spec is None and not implementation.optionalhook:
                near = difflib.get_close_matches(caller.name, _HOOKS, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; the hooks are {', '.join(_HOOKS)}"
                raise PluginError(f"{caller.name} is not a hook{hint}")
    return tuple(sorted(hooks)), tuple(sorted(wrappers))


def name_problem(name: str) -> str:
    """Why no StorageClass can have this provisioner name, and so no claim can ever ask for it; "" if one can.

    Callable from any thread. Since 0.1. Source: the API's validation of StorageClass.provisioner.
    """
    prefix, slash, part = name.rpartition("/")
    fits = _NAME_PART.fullmatch(part) and (
        not slash or (len(prefix) <= _MAX_PREFIX and _NAME_PREFIX.fullmatch(prefix.lower()))
    )
    if fits:
        return ""
    return (
        f"the provisioner name {name[:80]!r} is none that a StorageClass can have: write it like example.com/nfs, at "
        "most 63 letters, digits, '-', '_' and '.', before it at most one '/' with a domain name in front"
    )


def _check_functions(manager: pluggy.PluginManager, instance: object) -> None:
    for caller in manager.get_hookcallers(instance) or ():
        for implementation in caller.get_hookimpls():
            function = implementation.function
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                raise PluginError(f"{caller.name} is an async function; hooks are plain functions, called on threads")
            wraps = implementation.wrapper or implementation.hookwrapper
            if inspect.isgeneratorfunction(function) and not wraps and caller.name not in _MAY_YIELD:
                raise PluginError(f"{caller.name} is a generator; return the answer, or mark it hookimpl(wrapper=True)")


def signature_problem(error: pluggy.PluginValidationError) -> str:
    """Pluggy's words on one line, and the arguments that the hook has. Callable from any thread. Since 0.1."""
    text = " ".join(str(error).split())
    text = text[max(text.find("hook '"), 0) :]  # the plugin is named by who asks
    for name in _HOOKS:
        if f"hook {name!r}" in text:
            parameters = [p for p in inspect.signature(getattr(HookSpecs, name)).parameters if p != "self"]
            return f"{text}; the arguments of {name} are: {', '.join(parameters) or 'none'}"
    return text
