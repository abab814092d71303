"""Settings of the documentation: `make docs`."""

import importlib.metadata

project = "Ostinato"
copyright = "the Ostinato developers"
version = release = importlib.metadata.version("ostinato")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["style"]
html_css_files = ["pictures.css"]
html_title = f"Ostinato {version}"

# The notebook has no outputs: they are made here, and a cell that raises fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

myst_heading_anchors = 3
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_ivar = True
