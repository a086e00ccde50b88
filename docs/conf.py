"""How `make docs` makes the site: the pages where they lie, and the API from the docstrings.

The source folder is the repository's root, so that a link between two pages is the same in the
repository's viewer and on the site. `as_page` treats what only one of both can show.
"""

from __future__ import annotations
import __future__

import os
import re
import sys
import types
import typing
from pathlib import Path

import numpy.typing
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

ROOT = Path(__file__).parents[1]
STUB = ROOT / "python/headwater/_headwater.pyi"

project = "headwater"
author = "The headwater developers"
copyright = author  # noqa: A001
release = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
source_suffix = {".md": "markdown", ".py": "markdown"}
include_patterns = [
    "*.md",
    "burn/README.md",
    "docs/**.md",
    "docs/notebooks/*.py",
    "examples/*/README.md",
    "fuzz/README.md",
    "mpi-examples/README.md",
    "src/**/FORMAT.md",
    "src/reducer/SCALE.md",
    "tests/mutants/*.md",
]
# Folders that are not looked into.
exclude_patterns = [".*", "demo", "runs", "target", "**/__pycache__"]

# Pages without a title, or with two: Rust shows a FORMAT.md below a title of its own.
TITLES = {
    "mpi-examples/README": "Programs that check themselves",
    "src/container/FORMAT": "Files of sections",
    "src/events/FORMAT": "Event stores and token rows",
    "src/fold/FORMAT": "Statistics and partials",
    "src/plan/FORMAT": "Plans and cursors",
    "src/prepare/arrayrecord/FORMAT": "ArrayRecord files",
    "src/reducer/FORMAT": "Folds by several ranks",
    "src/sampler/FORMAT": "Batches",
    "src/store/FORMAT": "Stores",
}

html_theme = "furo"
html_title = f"headwater {release}"
html_extra_path = ["site"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

myst_heading_anchors = 4
default_role = "code"
nitpicky = True
nitpick_ignore_regex = [
    # Other libraries, whose pages are not asked: the site is made without a network.
    ("py:.*", r"(collections|datetime|grain|jax|np|npt|numpy|orbax|os|pathlib|torch)\..*"),
    # Names of types, and modules of confluence that are not on the site.
    ("py:class", r"Bits|Split|Tensors|confluence\.\w+\.\w+"),
    ("py:exc", r"(Checkpoint|Config|Join|Training)Error"),
]

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
autodoc_mock_imports = ["maxtext", "torch"]
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_ivar = True


# Else a signature shows the private types that it is made of.
numpy.typing.ArrayLike = type("ArrayLike", (), {"__module__": "numpy.typing"})


def stub_in_place_of_the_extension() -> None:
    """Lets `import headwater._headwater` find the stub, which has the types and the docstrings."""
    module = types.ModuleType("headwater._headwater")
    module.__file__ = os.fspath(STUB)
    module.__version__ = release
    # Only type checkers know it.
    typing.type_check_only = lambda item: item
    annotations_are_texts = __future__.annotations.compiler_flag
    exec(compile(STUB.read_text(), STUB, "exec", annotations_are_texts), vars(module))
    sys.modules["headwater._headwater"] = module
    # Its public names are those of the package, as those of the extension are.
    import headwater

    for name in headwater.__all__:
        item = getattr(headwater, name)
        if getattr(item, "__module__", None) == module.__name__:
            item.__module__ = "headwater"


def notebook_as_text(text: str) -> str:
    """Returns a notebook in the percent format as a page: its texts, and its code in fences."""
    parts = []
    for cell in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        kind, _, body = cell.partition("\n")
        if "[markdown]" in kind:
            parts.append(re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip())
        else:
            parts.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def lower_headings(text: str) -> str:
    """Returns a page with each heading one level lower; a `#` in a fence is code."""
    parts = re.split(r"^(```.*?^```)$", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"^#", "##", part, flags=re.MULTILINE) for part in parts[::2]]
    return "".join(parts)


def as_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Makes of a file what the site can show, before it is parsed."""
    folder = (ROOT / docname).parent
    text = source[0]
    if docname.startswith("docs/notebooks/"):
        text = notebook_as_text(text)
    if docname in TITLES:
        text = f"# {TITLES[docname]}\n\n{lower_headings(text)}"
        # A link of Rust to a module leads to the page that the module shows, one to a type nowhere.
        above = os.path.relpath(ROOT, folder)
        text = re.sub(r"\]\(crate::(\w+)\)", rf"]({above}/src/\1/FORMAT.md)", text)
        text = re.sub(r"\[(`\w+`)\](?!\()", r"\1", text)

    def linked(link: re.Match[str]) -> str:
        shown, target = link.groups()
        path = (folder / target).resolve()
        if app.project.path2doc(path) in app.project.docnames:
            return link[0]
        if path.is_file():
            return f"{{download}}`{shown} <{target}>`"
        # The site has no pages for folders, nor for modules without a FORMAT.md.
        return shown if path.is_dir() or path.name == "FORMAT.md" else link[0]

    source[0] = re.sub(r"(?<!!)\[([^\]\[]+)\]\(([^)#:\s]+)\)", linked, text)


def skip_fields(_app: Sphinx, _what: str, _name: str, item: object, *_: object) -> bool | None:
    """Leaves out the fields of named tuples, of which Python alone says something."""
    return True if (item.__doc__ or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    stub_in_place_of_the_extension()
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", as_page)
    app.connect("autodoc-skip-member", skip_fields)
    # Napoleon takes what stands before a colon in a property's first line for a type.
    GoogleDocstring._parse_attribute_docstring = lambda self: list(self._lines)
