"""What may leave the process: which documents are excluded, and which parts of the others are replaced.

guard          the gate that each request passes as it is sent, and what the policy says of documents at this moment
exclusion      the policy: why a document is excluded
ignore_rules   patterns in the syntax of .gitignore, and the files that have them
credentials    names of files that hold credentials
secrets        finds and replaces secrets in text that may reach another machine
"""
