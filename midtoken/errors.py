"""What can go wrong between the command line and a request.

MidtokenError (inference.errors)
├── PlaceError                an argument FILE:LINE:COLUMN does not name a position in a readable text file
├── UnreadableFileError       a file that an argument names cannot be read
├── UnwritableFileError       a file that an argument names cannot be written
├── MissingPackagesError      packages of an optional extra are not installed
└── LaunchError (inference.errors)
    └── MissingResourceError  a file that belongs to midtoken is missing from the installation
"""

from inference.errors import LaunchError, MidtokenError


class PlaceError(MidtokenError):
    """The text is not FILE:LINE:COLUMN, or no position in a readable text file. Says what is wrong."""


class UnreadableFileError(MidtokenError):
    """A file cannot be read. Says which file and why."""


class UnwritableFileError(MidtokenError):
    """A file cannot be written. Says which file and why."""


class MissingPackagesError(MidtokenError):
    """Packages that only some commands need are not installed. Says what needs them and how to install them."""


class MissingResourceError(LaunchError):
    """A file that belongs to midtoken is missing from the installation. Says which."""
