"""A drawn context, for a notebook, a terminal or a file."""

from __future__ import annotations

import html
import os

from headwater._headwater import write_page


class Page:
    """The context of one seed: an HTML page that loads nothing else, and the same as text.

    A notebook shows the page in a frame of its own, so that its style and its script touch nothing
    else; `print` shows the text.

    Attributes:
        html: The page.
        text: The rows of the context as a tree.

    Example:
        >>> page = sampler.draw("churn", 0)  # doctest: +SKIP
        >>> page.save("context.html")  # doctest: +SKIP
    """

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, whole or not at all.

        Args:
            path: The file. An earlier page there is replaced, but no other file.

        Raises:
            InvalidArgument: `path` is something else than a page, or lies in a store.
            IoError: The file cannot be written.
        """
        write_page(path, self.html)

    def __str__(self) -> str:
        return self.text.rstrip()

    def __repr__(self) -> str:
        return f"<Page of {self.text.partition(':')[0]}>"

    def _repr_html_(self) -> str:
        # Without allow-same-origin its script cannot reach the notebook.
        return (
            '<iframe sandbox="allow-scripts" style="border: 0; height: 42em; width: 100%" '
            f'srcdoc="{html.escape(self.html, quote=True)}"></iframe>'
        )
