"""The errors of the command line.

MidtokenError (inference.errors)
├── UsageError                an argument, or a file that it names, cannot be used, or arguments contradict each other
├── MissingPackagesError      packages of an optional extra are not installed
└── LaunchError (inference.errors)
    └── MissingResourceError  a file that belongs to midtoken is missing from the installation
"""

from inference.errors import LaunchError, MidtokenError


class UsageError(MidtokenError):
    """An argument, or a file that it names, cannot be used. The message says which and why."""


class MissingPackagesError(MidtokenError):
    """Optional packages are not installed. The message says what needs them and how to install them."""


class MissingResourceError(LaunchError):
    """A file that belongs to midtoken is missing from the installation. The message says which file."""
