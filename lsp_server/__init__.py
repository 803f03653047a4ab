"""From an editor to a completion request and back. A request passes through these modules, in this order:

stdio, protocol         read the editor's messages, and refuse those that are not LSP
features                maps LSP messages to calls of the server, and its answers to LSP results
server                  hands each edit and each request to the session of its document
open_documents          says whether the document gets suggestions (the reasons are in no_suggestion)
editor_request          the request: a place in the text of the document (documents), and the text around it (context)
session                 answers it from text that was generated before, or has a new request built and sent
request_builder         what is sent: without secrets (privacy), with declarations of other open files (related);
                        clearing it is the last step
backend                 the connection to the completion server
filters, indentation    make the model's text fit into the document
items                   LSP items

Beside them, prefetch sends the same request before a key asks for it, settings has the user's settings, and status
tells the user what has changed.
"""
