"""From an editor to a completion request and back. One request passes through these modules:

transport        the editor's messages: read from stdin, refused or handled in their order
features         LSP messages in, LSP results out; add a new LSP feature here
server           the state that the features use: documents, sessions, settings, one backend
settings         the user's settings
documents        the text, kept in sync with the editor
positions        offsets within a line, in the units of the editor
context          which text of a document is sent
privacy          which documents are excluded, and which parts of the text are replaced
session          the requests of one document
backend          the connection to the completion server, shared by all documents
items            generated text to LSP items
status, window   what the user is told, and how it is shown
stdio            the process that an editor starts
"""
