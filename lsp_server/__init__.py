"""From an editor to a completion request and back. One request passes through these modules:

messages         the stream of the editor's messages, and the order in which they are handled
features         LSP messages in, LSP results out; add a new LSP feature here
server           the state that the features use: documents, sessions, settings, one backend
settings         the user's settings
documents        the text, kept in sync with the editor
positions        offsets within a line, in the units of the editor
context          which text of a document is sent; rules about what may be sent belong here
session          the requests of one document
backend          the connection to the completion server, shared by all documents
items            generated text to LSP items
status, window   what the user is told, and how it is shown
stdio            the process that an editor starts
stdin_reader     its input
editor_process   the process that it ends with
pygls_overrides  changes to pygls's behaviour: which messages are refused
log_filter       what is removed from pygls's log
"""
