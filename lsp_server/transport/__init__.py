"""The messages between the editor and the language server.

stdin_reader     reads stdin
messages         frames, and the order in which messages are handled
pygls_overrides  changes to pygls's behaviour: which messages are refused
editor_process   the process of the editor, with which the language server ends
log_filter       what is removed from pygls's log
"""
