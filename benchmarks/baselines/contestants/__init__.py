"""Other ways to complete code with the same weights, and midtoken, as processes that speak `line_protocol`.

Each module is run with `python -m`, in the repository's folder, by the Python of the project or of an environment of
its own. Those of other engines import nothing of midtoken but their neighbours here, which need the standard library
only.
"""
