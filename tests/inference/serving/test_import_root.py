import subprocess
import sys

from inference.serving.import_root import IMPORT_ROOT, is_checkout


def test_a_process_that_starts_in_the_import_root_imports_the_same_code() -> None:
    script = "from inference.serving.import_root import IMPORT_ROOT; print(IMPORT_ROOT)"
    printed = subprocess.run(
        [sys.executable, "-c", script], cwd=IMPORT_ROOT, check=True, capture_output=True, text=True
    )
    assert printed.stdout.strip() == str(IMPORT_ROOT)


def test_a_source_tree_is_a_checkout() -> None:
    assert is_checkout()
