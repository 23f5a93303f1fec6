"""What a new author does, step by step: scaffold, fill in, test, build, pip install, run, provision."""

from __future__ import annotations

import json
from pathlib import Path

from docpages import Scratch
from prov_host.testing import EmbeddedCluster


def test_a_new_author_ships_a_backend(tmp_path: Path, cluster: EmbeddedCluster) -> None:
    with Scratch(tmp_path, {"KUBECONFIG": str(cluster.kubeconfig)}) as scratch:
        # Scaffold: a package whose tests pass as generated.
        assert "wrote prov-host-tape-robot/pyproject.toml" in scratch.run("prov-host new-plugin tape-robot")
        scratch.run("cd prov-host-tape-robot\npython -m pip install --quiet -e '.[test]'")
        assert " passed" in scratch.run("python -m pytest -q")

        # Fill in: every volume gets a label on its tape, which is a file here.
        plugin = scratch.current() / "src" / "prov_host_tape_robot" / "__init__.py"
        text = plugin.read_text()
        filled = text.replace(
            "            path.mkdir(exist_ok=True)  # asked again for the same volume, answer with the same asset\n",
            "            path.mkdir(exist_ok=True)\n            (path / 'LABEL').write_text(request.pv_name)\n",
        )
        assert filled != text
        plugin.write_text(filled)

        # Test: of the generated tests, only the one that says what a new volume looks like has to follow.
        failed = scratch.run("python -m pytest -q", may_fail=True)
        assert "test_a_new_volume_is_an_empty_directory" in failed
        assert "1 failed" in failed
        tests = scratch.current() / "tests" / "test_settings.py"
        followed = tests.read_text().replace(
            "assert list((root / request.pv_name).iterdir()) == []",
            "assert (root / request.pv_name / 'LABEL').read_text() == request.pv_name",
        )
        tests.write_text(followed)
        assert " passed" in scratch.run("python -m pytest -q")

        # Build, and install the wheel in the place of the sources.
        scratch.run("python -m pip wheel --quiet --no-deps --wheel-dir dist .")
        scratch.run("python -m pip uninstall --quiet --yes prov-host-tape-robot")
        scratch.run("cd ..\npython -m pip install --quiet prov-host-tape-robot/dist/*.whl")
        where = scratch.run("python -c 'import prov_host_tape_robot as p; print(p.__file__)'")
        assert str(scratch.environment) in where
        rows = json.loads(scratch.run("prov-host --plugin tape_robot plugins --json 2>/dev/null"))
        (row,) = [row for row in rows if row["name"] == "tape_robot"]
        assert (row["distribution"], row["status"]) == ("prov-host-tape-robot", "ok")

        # Run it, and provision on the embedded cluster.
        root = tmp_path / "tapes"
        root.mkdir()
        scratch.start(
            f"PROV_HOST_TAPE_ROBOT_ROOT={root} prov-host --plugin tape_robot --leader-election=false",
            "Serving provisioner example.com/tape-robot",
        )
        cluster.create_class("example.com/tape-robot")
        cluster.create_claim("data", "ns1")
        volume = cluster.wait_bound("data", "ns1")
        name = volume["metadata"]["name"]
        assert volume["spec"]["hostPath"] == {"path": f"{root}/{name}", "type": "Directory"}
        assert (root / name / "LABEL").read_text() == name
        cluster.delete("PersistentVolumeClaim", "data", "ns1")
        cluster.wait_gone("PersistentVolume", name)
        assert list(root.iterdir()) == []
