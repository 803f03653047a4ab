"""The errors of the command line.

MidtokenError (inference.errors)
├── CursorError               an argument FILE:LINE:COLUMN does not name a position in a readable text file
├── UnreadableFileError       a file that an argument names cannot be read
├── UnwritableFileError       a file that an argument names cannot be written
├── ServerAddressError        the arguments about a running server contradict each other, or text would go unencrypted
├── MissingPackagesError      packages of an optional extra are not installed
└── LaunchError (inference.errors)
    └── MissingResourceError  a file that belongs to midtoken is missing from the installation
"""

from inference.errors import LaunchError, MidtokenError


class CursorError(MidtokenError):
    """The text is not FILE:LINE:COLUMN, or not a position in a readable text file. The message says what is wrong."""


class UnreadableFileError(MidtokenError):
    """A file cannot be read. The message says which file and why."""


class UnwritableFileError(MidtokenError):
    """A file cannot be written. The message says which file and why."""


class ServerAddressError(MidtokenError):
    """A running server cannot be used as the arguments say. The message says why and what to do."""


class MissingPackagesError(MidtokenError):
    """Optional packages are not installed. The message says what needs them and how to install them."""


class MissingResourceError(LaunchError):
    """A file that belongs to midtoken is missing from the installation. The message says which file."""
