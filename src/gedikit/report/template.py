"""How a page becomes HTML: escaped, and nothing in it left undefined."""

import jinja2


def page_template(package: str) -> jinja2.Template:
    """The page.html beside the modules of a package."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
