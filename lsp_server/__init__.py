"""From an editor to a completion request and back. A request passes through these modules, in this order:

protocol                what pygls reads the editor's messages from, and refuses if it is not LSP
server                  maps LSP messages to calls of the assistant, and its answers to LSP results
assistant               finds the open document of each edit and each request, says whether it gets suggestions (the
                        reasons are in no_suggestion), and builds what is sent, with pieces of other open files
                        (other_files). While the user does nothing, it sends the request of the next key
documents               the text of a document, to which each edit is applied
session                 an open document and its requests: a place and the text around it (context). It answers a
                        request from text that was generated before, or has a new one built and sent
exclusion, ignore_rules which documents are excluded: nothing of them is sent
guard                   clears what is sent, without secrets where it may leave the machine. It is the last step
backend                 the connection to the completion server
items, indentation      make the model's text fit into the document, and LSP items of it

Beside them, settings has the user's settings, status tells the user what has changed, and model_offer asks whether to
download another model.
"""
