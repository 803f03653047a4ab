"""From an editor to a completion request and back. One request passes through these modules:

stdio          the process that an editor starts, and with which it ends; its messages, one by one
protocol       which of them are refused
features       LSP messages in, LSP results out; add a new LSP feature here
server         what the features call: it hands edits and requests to the session of their document
settings       the user's settings
open_documents which documents are open, and which of them get suggestions; no_suggestion has the reasons
documents      the text of a document, kept in sync with the editor; positions
editor_request a request as it comes: a place, and the text around it, which context selects
session        the requests of one document: answered from what was generated before, or by a new request
request_builder what is sent for a request, cleared as the last step
privacy        which documents are excluded, and which parts of the text are replaced
related        declarations of other open files
backend        the connection to the completion server
filters        what is done to the model's text before it is shown; indentation
items          insertions to LSP items
status         what the user is told
prefetch       at another time: sends what the next key will send
"""
