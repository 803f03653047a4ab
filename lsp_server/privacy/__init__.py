"""What may leave the process: which documents are excluded, and which parts of the others are replaced.

guard            the gate that all text passes before it is sent
exclusion_cache  what the policy says of each document at this moment; it is asked in threads
exclusion        the policy: why a document is excluded
paths            the paths of a document, each with one symbolic link less
credentials      names of files that hold credentials
patterns         ignore files, and the rule in them that excludes a path
git_rules        which paths Git ignores
redaction        replaces secrets in the text that is sent
detectors        finds them: tokens, values of names, and private keys
named_values     values beside a name such as `password`
surprise         whether characters look random
forms            how tokens look, as data
"""
