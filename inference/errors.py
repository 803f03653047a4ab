"""What can go wrong between a request and its bytes.

MidtokenError
├── InvalidRequestError     the request is not one that can be answered; says what and why
├── ModelError              the model folder cannot be loaded or used
├── OverloadedError         the engine has no room; try again later
├── ServerError             the server refused, failed or broke off
│   └── ServerUnreachableError   nothing answers at the address
└── LaunchError             the server could not be found or started
"""


class MidtokenError(Exception):
    """Base of every error this package raises on purpose. Its text is fit for a person to read."""


class InvalidRequestError(MidtokenError):
    """The request is not one that can be answered. The text names the field and what it should be."""


class ModelError(MidtokenError):
    """The model folder cannot be loaded or used."""


class OverloadedError(MidtokenError):
    """The engine has no room for another request now."""


class ServerError(MidtokenError):
    """The server refused, failed, or broke off in the middle of an answer."""


class ServerUnreachableError(ServerError):
    """Nothing answers at the server's address."""


class LaunchError(MidtokenError):
    """The server could not be found or started. The text says what to install or which log to read."""
