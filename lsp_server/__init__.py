"""From an editor to a completion request and back. One request passes through these modules:

features         LSP messages in, LSP results out; a new LSP feature is added here
server           the state behind the features: documents, sessions, settings, one backend
settings         what a person may set
documents        the text, kept in step with the editor (positions: offsets in the editor's units)
context          which text of a document is sent; rules about what may be sent belong here
session          one document's requests; backend: the connection that all documents share
items            generated text to what an editor inserts
status, window   what a person is told, and where
stdio            the process that an editor starts; pygls_overrides: where pygls is not used as it is
"""
