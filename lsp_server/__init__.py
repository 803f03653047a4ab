"""From an editor to a completion request and back. One request passes through these modules:

stdio          the process that an editor starts, and with which it ends; its messages, one by one
protocol       which of them are refused
features       LSP messages in, LSP results out; add a new LSP feature here
server         the state that the features use: a session for each open document, settings, one backend
settings       the user's settings
documents      the text of a document, kept in sync with the editor; positions
context        which part of a document is sent
no_suggestion  why there is none: which documents get suggestions, and at which places one would disturb
privacy        which documents are excluded, and which parts of the text are replaced
related        declarations of other open files
session        the requests of one document, answered from a generation, or by the backend
filters        what is done to the model's text before it is shown; indentation
items          insertions to LSP items
status         what the user is told
"""
