"""What may leave the process: which documents are excluded, and which parts of the others are replaced.

uris           the path that a document's URI names
spellings      the paths of one file, each with one symbolic link less
patterns       patterns as in .gitignore
rule_files     files and lists of patterns, and the rule among them that excludes a path
git_rules      the rules of the Git repository that a path is in
credentials    names of files that hold credentials
exclusion      the policy: why a document is excluded
detectors      the known forms of secrets in a line, from detect-secrets
key_blocks     private keys of several lines
spans          parts of a text
redaction      replaces secrets in a text
excerpt        replaces them in the text that is sent for a completion
guard          both for one language server: what `lsp_server.server` asks before it sends anything
"""
