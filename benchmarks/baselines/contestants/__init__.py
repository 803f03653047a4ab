"""Other ways to complete code with the same weights, and midtoken, as processes that speak `line_protocol`.

Each module is run with `python -m`, in the repository's folder, by the Python of its environment. Those of other
engines import nothing of midtoken but their neighbours here, which need the standard library only.
"""
