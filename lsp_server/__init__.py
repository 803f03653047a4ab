"""From an editor to a completion request and back. A request passes through these modules, in this order:

stdio, protocol         read the editor's messages, and refuse those that are not LSP
server                  maps LSP messages to calls of the assistant, and its answers to LSP results
assistant               hands each edit and each request to its open_document, which has the text (documents)
session                 the requests of one document: a place and the text around it (context). It answers a request
                        from text that was generated before, or has a new one built and sent
open_documents          says whether a document gets suggestions (the reasons are in no_suggestion), and what is sent:
                        without secrets (privacy), with declarations of other open files (related); clearing it is the
                        last step
backend                 the connection to the completion server
filters, indentation    make the model's text fit into the document
items                   LSP items

Beside them, prefetch sends the same request before a key asks for it, settings has the user's settings, and status
tells the user what has changed.
"""
