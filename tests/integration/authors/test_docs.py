"""Every code block of README.md and docs/ works, and the reference lists every public name."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import msgspec
import pytest

import prov_host
import prov_host.safedir
import prov_host.testing
from docpages import Page, Scratch, blocks_of
from docpages.blocks import BadBlock
from docpages.page import _matches
from prov_host.host_options import options
from prov_host.testing import PROMISES, EmbeddedCluster, RunningHost
from prov_host_hostpath import Directory, HostpathSettings, NodeSettings

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_block_of_a_page_works(page: Path, tmp_path: Path) -> None:
    if not blocks_of(page):
        return
    with EmbeddedCluster() as cluster, Scratch(tmp_path, {"KUBECONFIG": str(cluster.kubeconfig)}) as scratch:
        Page(page, scratch, cluster).execute()


def test_the_reference_lists_the_public_names_and_no_others() -> None:
    listed = set()
    for page in (DOCS / "reference").glob("*.md"):
        listed |= set(re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE))
    public = {f"prov_host.{name}" for name in prov_host.__all__}
    public |= {f"prov_host.testing.{name}" for name in prov_host.testing.__all__}
    public |= {f"prov_host.safedir.{name}" for name in prov_host.safedir.__all__}
    public |= {"prov_host.hookspecs.HookSpecs", "prov_host.testing.plugin"}
    assert listed == public


def test_every_public_name_is_described() -> None:
    for module in (prov_host, prov_host.testing, prov_host.safedir):
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) or callable(value):
                assert value.__doc__, f"{module.__name__}.{name} has no docstring"


@pytest.mark.parametrize("name", [name for name in vars(prov_host.hookspecs.HookSpecs) if not name.startswith("_")])
def test_every_hook_says_what_it_is_given_what_it_answers_and_since_when(name: str) -> None:
    hook = getattr(prov_host.hookspecs.HookSpecs, name)
    signature = inspect.signature(hook)
    assert re.search(r"\b[Cc]alled\b|\basked\b|\bAsked\b|\bTold\b", hook.__doc__), (
        "when and on which thread it is called"
    )
    assert "Since API 1" in hook.__doc__
    for parameter in list(signature.parameters)[1:]:
        assert re.search(rf"^            {parameter}: ", hook.__doc__, re.MULTILINE), parameter
    if signature.return_annotation not in ("None", None):
        assert "Returns:" in hook.__doc__


def test_every_option_is_listed_where_the_page_wants_the_table() -> None:
    hook = runpy.run_path(str(DOCS / ".hooks" / "options.py"))
    page = hook["on_page_markdown"]((DOCS / "reference" / "options.md").read_text())
    listed = re.findall(r"^\| `--([a-z-]+)` \| .* \| .+ \|$", page, re.MULTILINE)
    assert listed == sorted(option.name for option in options())


def test_roles_of_docstrings_are_shown_as_code() -> None:
    hook = runpy.run_path(str(DOCS / ".hooks" / "roles.py"))["on_page_content"]
    assert hook("<p>see :class:<code>~a.b.C</code> and :meth:<code>x.y</code></p>") == (
        "<p>see <code>C</code> and <code>x.y</code></p>"
    )


@pytest.mark.parametrize("kind", [HostpathSettings, Directory, NodeSettings])
def test_every_setting_of_hostpath_is_listed(kind: type[msgspec.Struct]) -> None:
    section = (DOCS / "how-to" / "node-local-volumes.md").read_text()
    for field in msgspec.structs.fields(kind):
        assert f"`{field.name}`" in section, field.name


def test_every_metric_of_the_host_is_explained(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    root = tmp_path / "volumes"
    root.mkdir()
    settings = {"hostpath": {"directories": [str(root)]}}
    with RunningHost(cluster, {"hostpath": None}, settings=settings) as host:
        cluster.create_class("prov-host/hostpath")
        cluster.create_claim()
        cluster.wait_bound()
        families = list(host.registry.collect())
    named = {family.name + {"counter": "_total", "info": "_info"}.get(family.type, "") for family in families}
    explained = set()
    for page in ("operations.md", "how-to/node-local-volumes.md"):
        explained |= set(
            re.findall(r"`((?:controller|workqueue|rest_client|prov_host)_[a-z_]+)`", (DOCS / page).read_text())
        )
    assert named == explained


def test_every_event_of_the_controller_is_explained() -> None:
    text = (DOCS / "operations.md").read_text()
    for module in (REPOSITORY / "host" / "prov_host" / "controller").glob("*.py"):
        for reason in re.findall(r'"(?:Normal|Warning)",\s*"(?!Warning)([A-Z][A-Za-z]+)"', module.read_text()):
            assert f"`{reason}`" in text, f"{module.name}: {reason}"


def test_every_promise_is_listed() -> None:
    text = (DOCS / "how-to" / "test-a-plugin.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) == list(PROMISES)


def test_every_page_is_in_the_menu() -> None:
    menu = (REPOSITORY / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert f": {page.relative_to(DOCS)}\n" in menu, page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```ruby\nputs 1\n```\n", "the fence says 'ruby'"),
        ("```\nls\n```\n", "the fence says ''"),
        ("```sh\nls\n", "not closed"),
        ("<!-- docs-test: skip -->\n```sh\nls\n```\n", "does not know 'skip'"),
        ("<!-- docs-test: background -->\ntext\n", "must stand before a fence"),
    ],
)
def test_a_block_that_nobody_would_execute_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(BadBlock, match=words):
        blocks_of(page)


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\n```\n",
        "```sh\nexport A=1\ncd /\n```\n```console\n$ echo $A $PWD\n2 /\n```\n",
        "```python\nassert 1 == 2\n```\n",
        "```toml\nworker-threds = 2\n```\n",
        '```toml\n[hostpath]\nscope = "everywhere"\n```\n',
        "```yaml\na: [\n```\n",
        "```yaml\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: x}\n```\n",
        '```json\n{"a"}\n```\n',
        '```python title="x.py"\ndef\n```\n',
        '<!-- docs-test: background, ready="never" -->\n```sh\nfalse\n```\n',
    ],
)
def test_a_block_that_does_not_work_is_found(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with EmbeddedCluster() as cluster, Scratch(tmp_path / "scratch") as scratch, pytest.raises(Exception) as caught:
        Page(page, scratch, cluster).execute()
    assert "in the block at page.md:" in caught.value.__notes__[0]


def test_blocks_of_a_page_go_on_from_each_other(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nexport A=1\nmkdir d\ncd d\n```\n"
        "```console\n$ echo $A; basename $PWD\n1\nd\n$ printf 'a\\nb\\nc\\n'\na\n...\n```\n"
        "```python\nx = 1\n```\n```python\nassert x == 1\n```\n"
        '<!-- docs-test: background, ready="here" -->\n```sh\necho here; sleep 60\n```\n'
    )
    with EmbeddedCluster() as cluster, Scratch(tmp_path / "scratch") as scratch:
        assert Page(page, scratch, cluster).execute() == 5


def test_transcripts_are_compared_line_by_line() -> None:
    assert _matches("a ... c\n", "a b c\n")
    assert _matches("a\n...\nz\n", "a\nb\nc\nz\n")
    assert _matches("", "")
    assert not _matches("a\n", "a\nb\n")
    assert not _matches("a\n", "")
