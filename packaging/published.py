"""Where this project is published, as packaging/publication says."""

import pathlib
import re


def address():
    text = (pathlib.Path(__file__).resolve().parent / "publication").read_text()
    return re.search(r'^ADDRESS="(.*)"$', text, re.MULTILINE).group(1)
