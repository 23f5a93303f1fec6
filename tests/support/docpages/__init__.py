"""The code blocks of README.md and docs/, found and executed, so that no page shows what does not work.

What a fence's language means:

* ``sh`` is run by bash, in a directory of the page's own, one block after another with the same environment;
* ``console`` is a transcript: each line after ``$`` is run, whatever its exit code, and what follows must be its
  output; ``...`` alone on a line stands for any lines, and within a line for any text;
* ``python`` is executed, one block after another in one namespace;
* ``toml`` is read as the host's settings file, with every installed plugin's own types;
* ``yaml`` is parsed, and each object of it with a kind that the embedded cluster serves must be accepted there;
* ``json`` is parsed;
* ``text`` and ``mermaid`` are no code.

A fence with ``title="path"`` is a file: it is written there, from where the last ``cd`` led, and must parse by its
suffix. A comment ``<!-- docs-test: background ready="text" -->`` before an ``sh`` fence starts it, and goes on once its
output has the text. Anything else in a fence's head fails the test, so that no block is passed over by a slip.

Blocks find the repository as ``$PROJECT``, and ``$KUBECONFIG`` leads to an embedded cluster of the page's own.
"""

from docpages.blocks import Block, blocks_of
from docpages.page import Page
from docpages.scratch import Scratch

__all__ = ["Block", "Page", "Scratch", "blocks_of"]
