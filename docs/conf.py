"""Sphinx configuration of the documentation site; ``python tools/build_docs.py`` builds it."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]  # this checkout's chakra; the site's own extensions

import chakra  # noqa: E402

project = "chakra"
author = "the chakra authors"
copyright = "the chakra authors, MIT licence"
version = release = chakra.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "repository_files",
    "command_reference",
    "public_api",
    "inline_code",
    "pictures",
    "code_links",
    "cited_places",
]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_ext", "_static", "_templates", "studies"]
templates_path = ["_templates"]

# Pages are plain Markdown that reads well without the site, so no syntax of MyST's that others print raw.
myst_enable_extensions: list[str] = []
smartquotes = False  # an option that is written in plain text keeps its hyphens
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"chakra {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
highlight_language = "text"
copybutton_exclude = ".linenos, .gp, .go"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
maximum_signature_line_length = 88
add_module_names = False
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_use_ivar = True

# Every reference that a page writes must lead somewhere. Types in signatures may be those of other projects, which are
# not looked up (the build needs no network), or of modules behind the public ones.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!chakra\.).*"),
]
# several classes have an attribute of the same name: not a mistake
suppress_warnings = ["ref.python"]
