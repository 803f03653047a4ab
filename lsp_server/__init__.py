"""From an editor to a completion request and back. One request passes through these modules:

transport        the editor's messages: read from stdin, refused or handled in their order
features, usage  LSP messages in, LSP results out; add a new LSP feature here
server           the state that the features use: documents, sessions, settings, one backend
settings         the user's settings
text             the documents, kept in sync with the editor; positions; which part is sent
eligibility      which documents get suggestions, and disturbance: at which places one would disturb
privacy          which documents are excluded, and which parts of the text are replaced
related          declarations of other open files
completion       the requests of one document, and the connection to the completion server
filters          what is done to the model's text before it is shown
items            insertions to LSP items
reporting        what the user is told, and how it is shown
stdio            the process that an editor starts
"""
