"""The settings of Sphinx; ``docs/site/build.py`` calls it."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

project = "servetune"
author = "the servetune authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_title = "servetune"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4  # links to headings are written, and checked, as GitHub has them

smartquotes = False
highlight_language = "none"  # a block without a language is no Python: it is a drawing, or a list of files
default_role = "code"  # docstrings write names in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
toc_object_entries = False  # half of the time of a build

# What stands before a colon in the words about a field is not its type, as napoleon takes it to be.
GoogleDocstring._parse_attribute_docstring = lambda words: list(words._dedent(words._consume_to_end()))


def setup(app: Sphinx) -> None:
    """Connect what is done with each page that was read."""
    app.connect("doctree-read", _link_pictures)


def _link_pictures(_: Sphinx, page: nodes.document) -> None:
    """Let a click on a picture show it alone: Sphinx links pictures that have a size, and these are large."""
    for picture in page.findall(nodes.image):
        if picture["uri"].endswith(".svg"):
            picture["width"] = "100%"
        else:
            picture["scale"] = 100
